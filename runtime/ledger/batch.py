"""The context of a batch, which workers need, and the limit of its dead letters."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Literal, NamedTuple

from runtime.errors import UsageError
from runtime.messages.envelope import IdKey, id_key
from runtime.messages.outcome import Outcome, Status
from runtime.messages.sizes import USUAL, MessageLimits


class BatchKey(NamedTuple):
    """Identifies a batch by id and number. The number is `None` if the ledger records none."""

    batch_id: str
    number: int | None = None


# The prefix of the batch that versions of a consumer record: the position of the delivery that made the version.
POSITION = "@"


@dataclass(frozen=True, slots=True)
class OpenBatches:
    """The batches that may still publish outputs."""

    next: int = 1  # this number and all higher numbers are open
    numbers: frozenset[int] = frozenset()  # the lower numbers that are open

    def is_finished(self, batch: str | None, number: int | None) -> bool:  # noqa: ARG002 - an id may be reused after pruning, a number never
        """Return whether batch `number` will publish no more outputs. True if `number` is None. Ignores `batch`."""
        return number is None or (number < self.next and number not in self.numbers)


# Errors of dead letters.
HELD_BACK = "An earlier message of its stream is a dead letter, and the batch runs with on_error=stop-stream."
FORGOTTEN = "Its business object was forgotten, and rejects all messages."
PARKED = "Its stream is parked: redrive or discard the earlier dead letter."


@dataclass(frozen=True, slots=True)
class BatchContext:
    """The options of a batch that apply to all of its messages."""

    batch_id: str | None = None  # None for single messages
    open_batches: OpenBatches | None = None  # None: unknown
    is_cascade: bool = False  # whether the messages are outputs of this batch
    # How to treat a message that might be a duplicate of a truncated version.
    late: Literal["refuse", "process"] = "refuse"
    # Whether a dead letter holds back later messages of its stream, in this batch or until it is redriven.
    on_error: Literal["continue", "stop-stream", "park"] = "continue"
    is_redrive: bool = False  # whether the messages are dead letters
    # How to treat a duplicate whose replay differs from the recorded version.
    on_difference: Literal["dead-letter", "fail"] = "dead-letter"
    number: int | None = None  # of the batch, or of a consumer batch
    limits: MessageLimits = USUAL
    # Returns the batch that versions record, given the negative indexes of their deliveries. None: `batch_id`.
    of: Callable[[Sequence[int]], str] | None = None

    def redriving(self, open_batches: OpenBatches | None) -> BatchContext:
        """Return the context of a redrive with these open batches, or this context if `open_batches` is `None`."""
        return self if open_batches is None else replace(self, is_redrive=True, open_batches=open_batches)

    @property
    def key(self) -> BatchKey | None:
        """The batch key recorded with versions and outbox entries, or `None` for single messages."""
        return None if self.batch_id is None else BatchKey(self.batch_id, self.number)

    def is_ours(self, batch: str | None, number: int | None) -> bool:
        """Return whether this batch made a version with this `batch` and `number`. Compares both: ids may be reused."""
        return batch is not None and batch == self.batch_id and number == self.number

    def is_finished(self, batch: str | None, number: int | None) -> bool:
        """Return whether a version's batch will publish no more outputs. True if `batch` or `open_batches` is None."""
        return batch is None or self.open_batches is None or self.open_batches.is_finished(batch, number)

    @property
    def stops_streams(self) -> bool:
        """Whether a dead letter holds back new messages of its stream."""
        return self.on_error != "continue"


_FORM = re.compile(r"(\d{1,18})|(\d{1,3}(?:\.\d{1,9})?)%")

HELD_BACK_MARKER = "_held-back"  # an empty file in the folder of a batch that is held back; Spark ignores it


@dataclass(frozen=True, slots=True)
class DeadLetterLimit:
    """A maximum number of dead letters, or a maximum percentage of all deliveries."""

    text: str
    most: float
    is_share: bool  # whether `most` is a percentage

    @classmethod
    def parse(cls, text: str) -> DeadLetterLimit:
        """Parse a limit such as `10` or `0.5%`. Raises `UsageError` for any other text."""
        match = _FORM.fullmatch(text.strip())
        if match is None or (match[2] and float(match[2]) > 100):  # noqa: PLR2004 - percent
            raise UsageError(
                f"{text!r} is not a limit of dead letters: use a number such as 10, or a share such as 0.5%."
            )
        return cls(match[0], float(match[1] or match[2]), match[1] is None)

    def is_exceeded(self, counts: Mapping[str, int]) -> bool:
        """Return whether a batch exceeds the limit. `counts` are the numbers of its deliveries by status."""
        dead = counts.get(Status.DEAD_LETTER, 0)
        if self.is_share:
            return 100 * dead > self.most * sum(counts.get(status, 0) for status in Status)
        return dead > self.most

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Seen:
    """Facts about earlier deliveries of a stream in this batch. They affect how later deliveries are handled."""

    delivered: Collection[IdKey] = frozenset()
    """Messages whose first delivery was decided. Only the first delivery has outputs."""
    dead_letter: bool = False  # whether a delivery became a dead letter, which may hold back new messages

    def after(self, outcomes: Sequence[Outcome]) -> Seen:
        """Return these facts, updated with the outcomes of more deliveries."""
        delivered = {id_key(each.envelope.message_id) for each in outcomes if each.version is not None}
        dead_letter = self.dead_letter or any(outcome.is_dead_letter for outcome in outcomes)
        return Seen({*self.delivered, *delivered}, dead_letter)

    def between_groups(self, outcomes: Sequence[Outcome]) -> Seen:
        """Return these facts, updated with the outcomes of a group of deliveries, for the next group of the stream.

        Adds only the id of the last message: copies of a message are adjacent, so only this one can have more.
        """
        last = outcomes[-1].envelope.message_id
        copies = list(takewhile(lambda outcome: outcome.envelope.message_id == last, reversed(outcomes)))
        return replace(self.after(outcomes), delivered=self.after(copies).delivered)


NOTHING = Seen()  # at the start of a stream
