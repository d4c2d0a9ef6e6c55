"""The interface of the algorithms that process each message exactly once.

An algorithm awaits only tables and `publish`, and each call to a table is one atomic operation. Clock, ids and sleep
are passed in, so that the model checker can run the shipped coroutines through all interleavings.

All algorithms decide on dead letters by `Refusals`.
"""

import uuid
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from hashlib import blake2b
from pathlib import Path
from typing import Protocol

from pydantic import ValidationError

from eventstore import Table
from handlers import HandlersError, NondeterminismError, OutputsTooLargeError
from handlers.codec import all_problems
from runtime.ledger.batch import PARKED, BatchContext, OpenBatches
from runtime.messages.envelope import SIZE, Envelope, IdKey, id_key
from runtime.messages.outcome import Outcome, Output, Reason, dead_letter
from runtime.messages.parsing import Delivery, Prepared
from runtime.namesakes import users_frame
from runtime.versions import limits
from runtime.versions.dead_letter_rows import Letter, Letters, LetterState, Waiting
from runtime.versions.stream import is_key

Publish = Callable[[Output], Awaitable[None]]
"""Sends one output, perhaps repeatedly. An exception ends the attempt at the message."""

AT_ONCE = timedelta()  # a minimum age of zero


class Algorithm(Protocol):
    """Processes the messages of one handler, one at a time."""

    async def process(self, message: Delivery, *, redrive_beside: OpenBatches | None = None) -> Outcome:
        """Handle a message, publish its outputs, and return its outcome.

        On return, the effect is durable and the message can be acknowledged. After cancellation or a crash at any
        await, the next delivery completes the work. A rejected message stays rejected until it is redriven.

        `redrive_beside`: the open batches, if this is a redrive. Dead letters of an open batch stay rejected, because
        all attempts at the batch must agree.

        Raises `RetriesExhaustedError` after too many conflicts or timeouts in a row.
        """

    async def sweep(self, older_than: timedelta = AT_ONCE) -> int:
        """Finish messages that crashed workers left unfinished: publish their outputs. Return the number of messages.

        Skips messages handled less than `older_than` ago, because the attempt to handle them may still be running.
        Sweeping such a message is safe, but may publish its outputs twice.
        """

    async def evict(self, older_than: timedelta, *, dry_run: bool = False) -> int:
        """Forget the ids of messages processed more than `older_than` ago, and return their number.

        Later copies of these messages are handled as new ones. `dry_run` only counts.
        """


NewId = Callable[[], str]  # returns an alphanumeric id that is unique across processes


def fresh_id() -> str:
    return uuid.uuid4().hex


class HandlerFailedError(Exception):
    """The failure of a handler's call, with the text and reason of its dead letter."""

    def __init__(self, problem: str, reason: Reason = Reason.HANDLER_ERROR) -> None:
        super().__init__(problem)
        self.reason = reason


class CallTimedOutError(BaseException):
    """Raised in a handler that exceeds its time limit. The handler's `except Exception` does not catch it."""


class CallCrashedError(Exception):
    """Raised instead of making a call that is known to crash its process."""


def failure_of(error: BaseException) -> HandlerFailedError:
    """Convert an exception of a handler to an error with the text and reason of a dead letter."""
    frame = users_frame(error)
    place = "" if frame is None else f" ({Path(frame.filename).name}, line {frame.lineno})"
    match error:
        case OutputsTooLargeError():
            return HandlerFailedError(f"{error}{place}", Reason.TOO_LARGE)
        case NondeterminismError():
            return HandlerFailedError(str(error))  # its text already says where
        case HandlersError():
            return HandlerFailedError(f"{error}{place}")
        case CallTimedOutError():
            return HandlerFailedError(f"{error}{place}", Reason.HANDLER_TIMEOUT)
        case CallCrashedError():
            return HandlerFailedError(str(error), Reason.HANDLER_CRASHED)
    try:
        text = str(error)
        if isinstance(error, ValidationError):
            is_frozen = any(problem["type"] == "frozen_instance" for problem in error.errors())
            advice = "; return a changed copy: model_copy(update={...})" if is_frozen else ""
            text = f"{error.title}: {all_problems(error)}{advice}"
    except Exception:  # noqa: BLE001 - the error is a handler's, and may be anything
        text = "(its text cannot be shown)"
    return HandlerFailedError(f"{type(error).__name__}: {text}{place}")


async def publish_all(table: Table, publish: Publish, outputs: Iterable[Output]) -> None:
    """Make the commits to a table durable, then publish outputs in order."""
    await table.barrier()
    for output in outputs:
        await publish(output)


class Refusals:
    """The dead letters of one stream, updated while its deliveries are decided.

    Each change records the position of its delivery, because a commit may cover only the first deliveries.
    """

    def __init__(
        self, letters: Letters, summary: Waiting, batch: BatchContext, numbers: Sequence[int] | None = None
    ) -> None:
        self._before = letters
        self._summary = summary
        self._batch = batch
        self._given = numbers
        self.kept = {letter.number: letter for letter in letters.all}  # with the changes so far
        self._numbers: dict[tuple[IdKey, bytes], int] = {
            (letter.key, letter.content): letter.number for letter in letters.all if self._decides(letter)
        }
        # A number is never given again: a redrive knows its dead letters by their numbers alone.
        self._next = max(summary.last, letters.last) + 1
        self._waiting = len(letters.waiting)
        self._size = sum(letter.size for letter in letters.waiting)
        self._changes: list[tuple[int, int, Letter | None]] = []
        self._beyond_limit: list[int] = []

    @property
    def is_full(self) -> bool:
        """Whether the changes to dead letters are as many as one transaction takes."""
        return len(self._changes) >= limits.MAX_TRANSACTION_LETTERS

    def refusal(self, position: int, message: Prepared, *, waits: bool = True) -> Outcome | None:
        """Return the rejection of a new message, or `None`.

        A message is rejected if it has a dead letter or, with `waits`, if it is parked behind one.
        """
        if not self.kept:
            return None
        own = self._own(position, message.key, message.fingerprint)
        if (letter := self._recorded(own)) is not None:
            return _refused(message, letter.reason, letter.error)
        if waits and self._is_held_back(own):
            return _refused(message, Reason.HELD_BACK, PARKED)
        return None

    def is_redriven(self, position: int, message: Prepared) -> bool:
        letter = self._own(position, message.key, message.fingerprint)
        return letter is not None and self._is_redriven(letter)

    def refused_by_redrive(self, position: int, message: Prepared) -> Outcome | None:
        """Return the outcome of a message that another attempt at this redrive rejected, otherwise `None`."""
        if not self.kept or not self._batch.is_redrive:
            return None
        own = self._own(position, message.key, message.fingerprint)
        return _refused(message, own.reason, own.error) if own is not None and self._is_ours(own) else None

    def _recorded(self, own: Letter | None) -> Letter | None:
        if own is None or own.reason is Reason.INVALID_ENVELOPE:  # the missing field may be present now
            return None
        return None if self._is_redriven(own) else own

    def _is_held_back(self, own: Letter | None) -> bool:
        parking = (letter.number for letter in self.kept.values() if letter.parks and letter.waits)
        return any(own is None or number < own.number for number in parking)

    def record(self, position: int, outcome: Outcome, delivery: Delivery, *, version: int, now: int) -> None:
        """Add the letter of a rejected delivery, or in a redrive update it. `version` was the newest then."""
        if outcome.reason is Reason.FORGOTTEN:
            return  # a dead letter would be data of the forgotten object
        content = _content(outcome.envelope) if isinstance(delivery, Outcome) else delivery.fingerprint
        batch, letter = self._batch, letter_of(outcome, self._batch, now)
        own = self._own(position, letter.key, content)
        # A parked message was not handled again.
        is_parked = outcome.reason is Reason.HELD_BACK and self._is_held_back(own)
        letter = letter._replace(
            number=self._next, content=content, version=version, parks=batch.on_error == "park" or is_parked
        )
        if own is not None:
            if self._is_redriven(own) and not is_parked:
                again = letter.again(own)
                # If the edited body is too large, keep the old one.
                if not self._fits(again, instead_of=own.size):
                    again = again._replace(envelope=own.envelope, enqueued_at=own.enqueued_at)
                self._change(position, again)
            return
        if self._waiting >= limits.MAX_LETTERS or not self._fits(letter):
            self._beyond_limit.append(position)
            if batch.batch_id is None:
                return
            letter = _decided(letter)
        self._change(position, letter)

    def _fits(self, letter: Letter, *, instead_of: int = 0) -> bool:
        room = limits.MAX_STREAM_LETTER_BYTES - self._size + instead_of
        return letter.size <= min(limits.MAX_LETTER_BYTES, room)

    def processed(self, position: int, key: IdKey, content: bytes) -> None:
        """Remove the dead letters of a processed message, given its id `key` and its fingerprint `content`.

        A redrive removes only the delivery's own letter. Otherwise `id_reused` ones stay: they are of other messages.
        """
        if self._batch.is_redrive:
            own = self._own(position, key, content)
            processed = [] if own is None else [own]
        else:
            processed = [letter for letter in self._of(key) if letter.reason is not Reason.ID_REUSED]
        for letter in processed:
            if letter.waits and self._may_be_attempted_again(letter):
                self._change(position, _decided(letter))
            elif letter.waits:
                self._change(position, letter, is_gone=True)

    def letters(self, decided: int) -> Sequence[Letter] | None:
        """Return the dead letters as changed by the first `decided` deliveries, or `None` if these change nothing."""
        changes = [change for change in self._changes if change[0] < decided]
        if not changes and not self._dropped(decided):
            return None
        letters = {letter.number: letter for letter in self._before.all}
        for _, number, letter in changes:
            if letter is None:
                letters.pop(number, None)
            else:
                letters[number] = letter
        # A letter beyond the limit is dropped once its batch makes no further attempt.
        over = [each for each in letters.values() if each.state is LetterState.BEYOND_LIMIT]
        over = self._before.portion([each for each in over if not self._may_be_attempted_again(each)])
        for each in over:
            del letters[each.number]
        return [letter for _, letter in sorted(letters.items())]

    def summary(self, letters: Sequence[Letter], decided: int) -> Waiting:
        """Return the summary of `letters`, as changed by the first `decided` deliveries."""
        return self._summary.after(letters, self._dropped(decided), self._next - 1)

    def _dropped(self, decided: int) -> int:
        """Return for how many of the first `decided` deliveries there was no room to keep the rejected message."""
        return sum(position < decided for position in self._beyond_limit)

    def _may_be_attempted_again(self, letter: Letter) -> bool:
        """Return whether the batch that last rejected a dead letter could make another attempt. True if unknown."""
        batch = self._batch
        if letter.batch is None:
            return False
        if batch.open_batches is None or self._is_ours(letter):
            return True
        return not batch.is_finished(letter.batch, letter.batch_number)

    def _find(self, key: IdKey, content: bytes) -> Letter | None:
        number = self._numbers.get((key, content))
        return None if number is None else self.kept.get(number)

    def _decides(self, letter: Letter) -> bool:
        """Return whether a dead letter affects this batch.

        A `BEYOND_LIMIT` letter, whose message is not kept, affects only the batch that rejected it.
        """
        return letter.state is not LetterState.BEYOND_LIMIT or self._is_ours(letter)

    def _is_ours(self, letter: Letter) -> bool:
        return self._batch.is_ours(letter.batch, letter.batch_number)

    def _is_redriven(self, letter: Letter) -> bool:
        """Return whether this redrive handles a dead letter. False if this redrive or an open batch rejected it."""
        batch = self._batch
        if not batch.is_redrive or not letter.waits or self._is_ours(letter):
            return False
        return batch.is_finished(letter.batch, letter.batch_number)

    def _own(self, position: int, key: IdKey, content: bytes) -> Letter | None:
        """Return the dead letter of a delivery, or `None`. In a redrive, `content` may differ: bodies can be edited."""
        named = None if self._given is None else self.kept.get(self._given[position])
        found = named or self._find(key, content)
        if found is not None or self._given is not None or not self._batch.is_redrive:
            return found
        return next((letter for letter in self._of(key) if letter.waits), None)

    def _of(self, key: IdKey) -> Iterator[Letter]:
        return iter([letter for letter in self.kept.values() if letter.key == key])

    def _change(self, position: int, letter: Letter, *, is_gone: bool = False) -> None:
        before = self.kept.pop(letter.number, None)
        if before is not None and before.waits:
            self._waiting -= 1
            self._size -= before.size
            self._numbers.pop((before.key, before.content), None)
        if is_gone:
            self._changes.append((position, letter.number, None))
            return
        self.kept[letter.number] = letter
        self._numbers[letter.key, letter.content] = letter.number
        if letter.waits:
            self._waiting += 1
            self._size += letter.size
        self._next = max(self._next, letter.number + 1)
        self._changes.append((position, letter.number, letter))


def decided_before(refusals: Refusals, position: int, message: Prepared, refused: Outcome) -> Outcome:
    """Return `refused`. But if it is `id_reused` and a copy left a dead letter, return that letter's outcome."""
    if refused.reason is not Reason.ID_REUSED:
        return refused
    return refusals.refusal(position, message, waits=False) or refused


def letter_of(refused: Outcome, batch: BatchContext, now: int) -> Letter:
    """Return the dead letter of a rejected delivery. Its number, fingerprint and version are not set yet."""
    if refused.reason is None:
        raise AssertionError("Only dead letters are kept.")
    envelope = refused.envelope
    return Letter(
        0,
        LetterState.WAITING,
        id_key(envelope.message_id or ""),
        b"",
        envelope.enqueued_at,
        envelope,
        refused.reason,
        refused.error or "",
        0,
        batch.batch_id,
        batch.number,
        now,
    )


def has_stream(refused: Outcome) -> bool:
    """Return whether a dead letter belongs to a stream with a valid key."""
    name, key = refused.handler, refused.business_id
    return bool(name and key) and is_key(f"{name}-{key}")


def _refused(message: Prepared, reason: Reason, error: str) -> Outcome:
    return dead_letter(message.envelope, reason, error, message.route.handler, message.business_id)


def _decided(letter: Letter) -> Letter:
    # All attempts at the batch must see the decision, but no longer need the message.
    return letter._replace(state=LetterState.BEYOND_LIMIT, envelope=None, parks=False)


def _content(envelope: Envelope) -> bytes:
    type_, body = [
        each if isinstance(each, bytes) else (each or "").encode("utf-8", "surrogatepass")
        for each in (envelope.type, envelope.body)
    ]
    return blake2b(type_ + b"\0" + body, digest_size=SIZE).digest()
