"""Handle the recorded history of a table again, with other handlers, into a second table.

The messages of a stream are handled in the order of its recorded versions, with their clock, draws and captured values.
While a message is missing, because another object publishes it, later messages are *held back*. Messages that only the
new handlers publish come after the history. A message that the new handlers no longer publish is *gone*, and its
version is skipped.

While a stream equals the recorded one, the second table stores only the number of the last version followed
(`Head.followed`, `Head.shared`). At the first difference the equal versions are copied, and new versions are appended.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from decimal import Decimal
from itertools import takewhile
from typing import Any, NamedTuple

from eventstore import InvalidKeyError, Table
from handlers import CaptureError, CodecError, Context, Published
from handlers.app import HandlerDefinition
from handlers.context import DOCUMENT
from runtime.algorithms.algorithm import HandlerFailedError
from runtime.algorithms.state_based.algorithm import StateBased
from runtime.algorithms.state_based.decide import Invoker
from runtime.algorithms.state_based.draft import CommitDraft
from runtime.algorithms.state_based.replay import Copy, Replayer, shown
from runtime.ledger.batch import FORGOTTEN, NOTHING, Seen
from runtime.messages.envelope import NO_OUTPUTS, Envelope, IdKey, digest_outputs, id_key
from runtime.messages.outcome import Outcome, Outcomes, Output, Reason, Status, dead_letter, outputs_of
from runtime.messages.parsing import Deliveries, Delivery, Prepared, is_copy, prepare
from runtime.retries import until_undisturbed
from runtime.versions import stream as streams
from runtime.versions.head import Head, NewestState
from runtime.versions.properties import error_location
from runtime.versions.readable import changes, decode, read_state
from runtime.versions.run import Run, Version
from runtime.versions.stream import History, StreamUpdate, append, load, stream_partition

NEW, GONE = "new", "gone"  # values of the header that marks outputs of only one of the two runs
VISIT = ""
"""The type of a delivery that asks to complete a stream. Its sequence is the number of the last version followed."""

_NOT_OF_HISTORY = "It made no version of the recorded history."
_WAITS = "An earlier message of its stream has not come yet."
_OUTPUT_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")
_NUMBER = re.compile(r"-?\d{1,40}(\.\d{1,40})?(E[+-]?\d{1,2})?")


class _NewContext(Context):
    """A context whose `capture` returns recorded values, and raises `CaptureError` for others without `captures`."""

    __slots__ = ("_captures",)

    def __init__(self, *given: Any, captures: bool, **named: Any) -> None:  # noqa: ANN401 - a context's
        super().__init__(*given, **named)
        self._captures = captures

    def capture(self, name: str, function: Callable[[], Any]) -> Any:  # noqa: ANN401 - plain data of any kind
        recorded = self._recorded or {}
        if name not in recorded:
            if not self._captures or name.startswith(DOCUMENT):
                raise CaptureError(f"{name!r} was not captured when the message was first handled.")
            self._recorded = None
        try:
            return super().capture(name, function)
        finally:
            self._recorded = recorded


class _Step(NamedTuple):
    """The next step of a stream: handle a message, or skip a recorded version whose message is gone."""

    version: Version | None  # None for a message that only the new handlers publish
    position: int | None  # of the delivery; None: gone
    was: Envelope | None  # the message that made the version, if it differs or is gone


class _Made(NamedTuple):
    """The result of handling a message. `after` is None if the handler failed."""

    after: bytes | None
    published: Sequence[Published] = ()
    error: str | None = None


@dataclass(frozen=True, kw_only=True)
class Manner:
    """Options for reprocessing recorded streams."""

    captures: bool = False  # capture values that were not recorded
    closes: bool = False  # treat missing outputs as gone
    keeps: bool = False  # keep the versions of missing outputs while a stream is equal
    mark: str = "consistent-mark"  # the header that marks outputs as NEW or GONE

    def has(self, version: Version) -> bool:  # noqa: ARG002 - all
        """Return whether to reprocess a version. If not, all later versions of its stream are ignored, too."""
        return True


@dataclass(eq=False, repr=False)
class Reprocessor:
    """Reprocesses the recorded streams of one handler, one stream at a time. Implements `BatchAlgorithm`."""

    algorithm: StateBased  # of the second table
    recorded: Table
    was: HandlerDefinition  # with the methods that made the history, if they are known
    manner: Manner = field(default_factory=Manner)
    is_added: bool = field(default=False, kw_only=True)  # the history lacks the handler: all messages are new

    async def process(
        self, business_id: str, deliveries: Sequence[Delivery], seen: Seen = NOTHING
    ) -> Sequence[Outcome]:
        """Follow the recorded stream until a message is missing. Return the outcomes.

        A message that makes the same state and outputs as recorded is a `duplicate`. Any other message is `processed`,
        with the differences as JSON in `error`.
        """
        algorithm = self.algorithm
        try:
            partition = stream_partition(algorithm.table, algorithm.handler.name, business_id)
        except InvalidKeyError:
            return await algorithm.process(business_id, deliveries, seen)

        async def follow() -> Sequence[Outcome]:
            return await _Stream(self, business_id, Deliveries.of(deliveries)).follow()

        with error_location(algorithm.table, partition.key):
            return await until_undisturbed(algorithm.retries, follow)


class _Stream:
    """Handles the messages of one recorded stream again, and stores the new versions in the second table.

    `followed` is the number of the last recorded version that was reprocessed, skipped or kept.
    """

    def __init__(self, of: Reprocessor, business_id: str, deliveries: Deliveries) -> None:
        self._of = of
        self._algorithm, self._handler = of.algorithm, of.algorithm.handler
        self._business_id = business_id
        self._names = (self._handler.name, business_id)
        # The headers lose their marks, and another attempt needs them.
        headers = list(deliveries.envelopes.headers)
        self._deliveries = replace(deliveries, envelopes=replace(deliveries.envelopes, headers=headers))
        self._outcomes: list[Outcome] = []
        self._recorded: tuple[Head, Sequence[Run]] = (Head(None, self._handler.codec.version), ())
        self._versions: Sequence[Version] = ()
        self._chosen: dict[IdKey, int] = {}  # the position of the delivery to take
        self._new: set[IdKey] = set()
        self._late: set[IdKey] = set()
        self._visited_at: int | None = None  # the last version followed before a visit
        self._were: dict[IdKey, Envelope] = {}  # recorded messages that changed or are gone

    async def follow(self) -> Sequence[Outcome]:
        read = await streams.read_whole(self._of.recorded, self._handler.name, self._business_id)
        self._recorded = read or self._recorded
        versions = (version for run in self._recorded[1] for version in run.all())
        self._versions = list(takewhile(self._of.manner.has, versions))
        if self._recorded[0].refuses:
            envelopes = self._deliveries.envelopes
            return [dead_letter(each, Reason.FORGOTTEN, FORGOTTEN, *self._names) for each in envelopes]
        self._choose()
        visited = () if self._visited_at is None else self._versions
        ids = {*self._chosen, *self._were, *(each.record.message_id for each in visited)}
        history = await load(self._algorithm.table, self._handler, self._business_id, ids)
        followed = self._rewound(history, max(history.head.followed, self._recorded[0].kept_from - 1))
        self._repeat(history, followed)
        steps, waiting = self._plan(history, followed)
        while steps or self._keeps_next(history, followed, waiting):
            is_own = _is_own(history)
            if not steps:
                followed += 1
                head = history.head._replace(followed=followed, shared=True)
                history = await append(history, StreamUpdate(head))
                steps, waiting = self._plan(history, followed)
                continue
            base = history if is_own else self._borrowed(history, followed)
            draft, made = self._decide(base, steps)
            sealed = draft.seal(self._algorithm.clock())
            taken = _beginning(steps, len(sealed.outcomes))
            ready = [step for step in taken if step.position is not None]
            same = [self._is_same(step.version, each) for step, each in zip(ready, made, strict=False)]
            reached = max([followed, *(step.version.number for step in taken if step.version is not None)])
            if not is_own and not (all(same) and len(ready) == len(taken)):
                history = await self._adopt(base, followed)
                continue
            update = StreamUpdate(history.head) if sealed.update is None or not is_own else sealed.update
            head = update.head._replace(followed=reached, shared=not is_own)
            history, followed = await append(history, replace(update, head=head)), reached
            self._report_all(taken, made, same, sealed.outcomes)
            steps = steps[len(taken) :]
            if not steps and waiting is not None:
                steps, waiting = self._plan(history, followed)
        for envelope, marked in waiting or ():
            if marked is not None:
                headers = {**(envelope.headers or {}), self._of.manner.mark: marked}
                envelope = envelope._replace(headers=headers)  # noqa: PLW2901 - another round reads the mark
            self._outcomes.append(dead_letter(envelope, Reason.HELD_BACK, _WAITS, *self._names))
        if waiting is None and _is_own(history):
            self._report_object(history)
        return self._outcomes

    def _keeps_next(self, history: History, followed: int, waiting: Sequence[object] | None) -> bool:
        """Return whether to keep the next version although its message, which is an output, is missing.

        `waiting`: the second result of `_plan`.
        """
        if waiting is None or not self._of.manner.keeps or _is_own(history):
            return False
        version = next(each for each in self._versions if each.number > followed)
        return is_made_by_handler(version.message_id)

    def _rewound(self, history: History, followed: int) -> int:
        """Return the number of the version to resume after: `followed`, or less if a kept version proves to differ."""
        for version in () if _is_own(history) else self._versions:
            key = version.record.message_id
            if version.number <= followed and key in (self._new if key in self._chosen else self._were):
                delivery = self._deliveries[self._chosen[key]] if key in self._chosen else None
                with suppress(HandlerFailedError, CodecError):
                    if isinstance(delivery, Prepared) and self._is_same(
                        version, self._replay(delivery, version)
                    ):
                        continue
                return version.number - 1
        return followed

    def _replay(self, delivery: Prepared, stored: Version) -> _Made:
        newest = self._handler.routes[delivery.envelope.type].newest
        stored = stored._replace(record=stored.record._replace(revision=newest))
        replayed = Replayer(self._handler, self._business_id).replay(Copy.of(delivery, stored))
        return _Made(replayed.after, replayed.published)

    def _choose(self) -> None:
        mark = self._of.manner.mark
        recorded = {each.record.message_id: each.record for each in self._versions}
        is_cascade = self._algorithm.batch.is_cascade
        for position, delivery in enumerate(self._deliveries):
            envelope, key = delivery.envelope, id_key(delivery.envelope.message_id or "")
            marked = (envelope.headers or {}).get(mark) if is_cascade else None
            if marked is not None:
                own = {name: value for name, value in (envelope.headers or {}).items() if name != mark}
                envelope = envelope._replace(headers=own or None)
            if marked == GONE:
                self._were[key] = envelope
                continue
            if envelope.type == VISIT:
                self._visited_at = envelope.sequence or 0
                continue
            if marked == NEW:
                self._deliveries.envelopes.headers[position] = envelope.headers
            if marked == NEW or self._of.is_added:
                self._new.add(key)
            made = recorded.get(key)
            is_exact = (
                made is None or not isinstance(delivery, Prepared) or is_copy(delivery, made.fingerprint)
            )
            if not is_exact and not is_cascade:
                error = "Another message with its id made a version of the recorded history."
                self._outcomes.append(Outcome(envelope, *self._names, Status.TOO_LATE, None, error))
            elif key not in self._chosen:
                self._chosen[key] = position
            else:
                if is_exact and marked is None and key in self._new:
                    self._chosen[key] = position
                self._repeated(envelope)

    def _plan(
        self, history: History, followed: int
    ) -> tuple[list[_Step], list[tuple[Envelope, str | None]] | None]:
        """Return the steps that are possible now, and the messages that must wait, each with its mark, if any.

        A mark, `NEW` or `GONE`, names the only run that made the message. `followed` counts the old versions so far.
        The second result is `None` if the steps complete the history.
        """
        steps, waiting = list[_Step](), None
        chosen, were = dict(self._chosen), dict(self._were)
        for version in self._versions:
            key = version.record.message_id
            position, was = chosen.pop(key, None), were.pop(key, None)
            if version.number <= followed:
                continue
            is_gone = was is not None or (self._of.manner.closes and is_made_by_handler(version.message_id))
            if position is None and not is_gone:
                waiting = list[tuple[Envelope, str | None]]()
                break
            steps.append(_Step(version, position, was))
        recorded = {each.record.message_id for each in self._versions}
        for key, position in self._chosen.items():
            is_due = key in self._late if key in recorded else key in self._new and not history.has(key)
            if not is_due and key not in chosen.keys() & recorded:
                continue
            if waiting is None:
                steps.append(_Step(None, position, None))
            else:
                marked = NEW if key in self._new else None
                waiting.append((self._deliveries[position].envelope, marked))
        if waiting is not None:
            waiting += [(were[key], GONE) for key in were.keys() & recorded]
        return steps, waiting

    def _borrowed(self, history: History, followed: int) -> History:
        """Return a history that ends with the recorded state after version `followed`. Never append to this history."""
        head, codec = self._recorded[0], self._handler.codec
        encoded, schema, now = self._handler.initial, codec.version, 0
        if followed and (head.state is not None or self._versions):
            encoded, schema = head.state or b"", head.schema
        for version in self._versions:
            if version.number == followed + 1:
                encoded, schema = version.before, version.schema
            elif version.number == followed:
                encoded, schema, now = version.after, version.schema, version.record.now
        newest = NewestState(codec.upcast(encoded, schema), codec.version)
        cut = head.kept_from, now, head.horizon, head.undated_cut
        return history._replace(head=Head(newest.encoded, newest.schema, followed, *cut), newest=newest)

    def _decide(self, history: History, steps: Sequence[_Step]) -> tuple[CommitDraft, list[_Made]]:
        handler, batch = self._handler, self._algorithm.batch
        ready = [(step.version, step.position) for step in steps if step.position is not None]
        deliveries = self._deliveries.take([position for _, position in ready])
        upcoming: Iterator[Version | None] = iter(())
        current: Version | None = None

        def clock() -> int:
            nonlocal current
            current = next(upcoming)
            if current is not None:
                return current.record.now
            position = len(draft.outcomes)
            return deliveries.envelopes.enqueued_at[position] or draft.last_now or self._algorithm.clock()

        def new_context(*given: Any, **named: Any) -> Context:  # noqa: ANN401 - a context's
            recorded = (None if current is None else current.record.captured) or {}
            return _NewContext(*given, recorded=recorded, captures=self._of.manner.captures, **named)

        state = read_state(handler.codec, history.newest.encoded, history.stream.partition.key)
        draft = CommitDraft(history, deliveries, NOTHING, state, batch)
        draft.outcomes.handler, draft.outcomes.business_id = self._names
        invoker = Invoker(handler, clock, batch, self._business_id, new_context=new_context)
        made: list[_Made] = []
        while len(made) < len(ready) and not draft.is_full:
            first = len(made)
            delivery, refused = deliveries[first], None
            if isinstance(delivery, Outcome):
                refused = delivery
            else:
                upcoming = iter([version for version, _ in ready[first:]])
                end = first + 1  # a new message is handled alone: its time depends on the draft
                while end < len(ready) and ready[first][0] and ready[end][0]:
                    if isinstance(deliveries.messages[end], Outcome):
                        break
                    end += 1
                failure = invoker.handle(draft, first, end)
                states, published = draft.packer.states, draft.outcomes.published[first:]
                made += map(_Made, states[len(states) - len(published) :], published)
                if failure is not None:
                    envelope = deliveries.envelopes[failure.position]
                    refused = dead_letter(envelope, failure.reason, failure.error, *self._names)
            if refused is not None:
                draft.refuse(refused, deliveries[len(made)], draft.last_now)
                made.append(_Made(None, (), refused.error))
        return draft, made

    def _is_same(self, version: Version | None, made: _Made) -> bool:
        if version is None or made.after is None:
            return False
        recorded = self._handler.codec.upcast(version.after, version.schema)
        return made.after == recorded and digest_outputs(made.published) == version.record.outputs_digest

    async def _adopt(self, base: History, followed: int) -> History:
        head, runs = self._recorded
        history = await load(self._algorithm.table, self._handler, self._business_id, ())
        history = await streams.copy_versions(history, head, runs, followed)
        own = history.head if history.head.versions else base.head
        await append(history, StreamUpdate(own._replace(followed=followed, shared=False)))
        return await load(self._algorithm.table, self._handler, self._business_id, set(self._chosen))

    def _repeat(self, history: History, followed: int) -> None:
        """Repeat the outcomes of messages that an earlier batch, or an earlier attempt at this batch, handled."""
        recorded = dict[IdKey, Version]()
        letters = {letter.key: letter for letter in history.letters.all}
        is_own = _is_own(history)
        for each in self._versions:
            key = each.record.message_id
            recorded[key] = each
            was_reported = self._visited_at is None or each.number <= self._visited_at
            if not is_own or each.number > followed or history.has(key) or key in letters:
                continue
            if key not in self._chosen and (key in self._were or not was_reported):
                self._report(_Step(each, None, self._were.get(key)), _Made(None), None, 0)
        for key, position in self._chosen.items():
            version, delivery = recorded.get(key), self._deliveries[position]
            own = history.find(key)
            if version is None and own is None and key not in self._new:
                late = Outcome(delivery.envelope, *self._names, Status.TOO_LATE, None, _NOT_OF_HISTORY)
                self._outcomes.append(late)
            if own is None and (version is None or version.number > followed):
                continue
            step, stored = _Step(version, position, self._were.get(key)), own if is_own else version
            if stored is None and key not in letters and isinstance(delivery, Prepared):
                self._late.add(key)  # its version was skipped before the message came
                continue
            if stored is None or not isinstance(delivery, Prepared):
                letter = letters.get(key)
                reason = Reason.REPLAY_FAILED if letter is None else letter.reason
                error = "" if letter is None else letter.error
                self._report(step, _Made(None, (), error), 0, 0)
                self._outcomes.append(dead_letter(delivery.envelope, reason, error, *self._names))
                continue
            made = self._replay(delivery, stored)
            if self._is_same(version, made):
                self._repeated(delivery.envelope, stored.number, stored.record.now, made.published)
            else:
                self._report(step, made, stored.number, stored.record.now)

    def _repeated(
        self, envelope: Envelope, version: int | None = None, now: int = 0, sent: Sequence[Published] = ()
    ) -> None:
        """Add a `duplicate`: the message makes the recorded `version` or, if `version` is `None`, is another copy."""
        outputs = outputs_of(sent, version or 0, now, envelope.headers)
        repeated = Outcome(envelope, *self._names, Status.DUPLICATE, version=version, outputs=outputs)
        self._outcomes.append(repeated)

    def _report_all(
        self, steps: Sequence[_Step], made: Sequence[_Made], same: Sequence[bool], outcomes: Outcomes
    ) -> None:
        """Report the outcome of each step. `made`, `same` and `outcomes` are aligned with the steps with a message."""
        at = 0
        for step in steps:
            if step.position is None:
                self._report(step, _Made(None), None, 0)
                continue
            number, now = outcomes.versions[at], outcomes.nows[at]
            if same[at]:
                envelope = self._deliveries.envelopes[step.position]
                self._repeated(envelope, number, now, made[at].published)
            else:
                self._report(step, made[at], number, now)
                if at in outcomes.refused:
                    self._outcomes.append(outcomes.refused[at])
            at += 1

    def _report(self, step: _Step, made: _Made, number: int | None, now: int) -> None:
        """Add an outcome that states in JSON how a step differs from the record. `number`: the new version, if any."""
        version, fields = step.version, list[dict[str, str]]()
        state, was = ("new" if version is None else "gone"), None if version is None else version.number
        if step.position is not None:
            envelope = self._deliveries.envelopes[step.position]
            state = state if made.error is None else "refused"
        else:
            gone = ("", "") if version is None else (version.message_id, version.record.type)
            envelope = step.was or Envelope(*gone, "")
        if version is not None and made.after is not None:
            before = self._handler.codec.upcast(version.after, version.schema)
            fields = _fields(decode(before), decode(made.after))
            state = "changed" if fields else "same"
        published = () if version is None else self._published_before(version, step.was or envelope)
        outputs, marked = _compare(published, made.published, self._of.manner.mark)
        moment = now or (version.record.now if version is not None else 0)
        sent = outputs_of(marked, number or was or 0, moment)
        difference = {"state": state, "was": was, "error": made.error, "now": moment, "fields": fields}
        number = None if made.after is None else number
        self._differs(envelope, {**difference, "outputs": outputs}, number, sent)

    def _differs(
        self, envelope: Envelope, found: object, number: int | None, outputs: tuple[Output, ...] = ()
    ) -> None:
        text = json.dumps(found, ensure_ascii=False)
        self._outcomes.append(Outcome(envelope, *self._names, Status.PROCESSED, None, text, number, outputs))

    def _published_before(self, version: Version, envelope: Envelope) -> Sequence[Published] | None:
        """Return the recorded outputs of a version, or `None` if the old handler (`was`) does not reproduce them."""
        if version.record.outputs_digest == NO_OUTPUTS:
            return ()
        delivery = prepare(self._of.was, self._business_id, envelope)
        if not isinstance(delivery, Prepared):
            return None
        try:
            found = Replayer(self._of.was, self._business_id).replay(Copy.of(delivery, version)).published
        except (HandlerFailedError, CodecError):
            return None
        return found if digest_outputs(found) == version.record.outputs_digest else None

    def _report_object(self, history: History) -> None:
        """Add an outcome, without a message, that states how the final state differs from the recorded one."""
        before = self._handler.initial
        if self._versions:
            before = self._handler.codec.upcast(self._versions[-1].after, self._versions[-1].schema)
        old, new = decode(before), decode(history.newest.encoded)
        found = {"state": "object", "fields": _fields(old, new), "numbers": _numbers(old, new)}
        self._differs(Envelope("", "", ""), found, history.head.versions)


def _is_own(history: History) -> bool:
    """Return whether the stream has differed from the recorded one, so that the second table stores its versions."""
    return history.stream.etag is not None and not history.head.shared


def is_made_by_handler(message_id: str) -> bool:
    """Return whether a message id has the form of the ids of outputs: a UUID of version 8."""
    return _OUTPUT_ID.fullmatch(message_id) is not None


def _beginning(steps: Sequence[_Step], count: int) -> Sequence[_Step]:
    """Return the longest start of `steps` in which at most `count` steps handle a message."""
    for at, step in enumerate(steps):
        if step.position is not None:
            if not count:
                return steps[:at]
            count -= 1
    return steps


def _compare(
    was: Sequence[Published] | None, now: Sequence[Published], mark: str
) -> tuple[list[dict[str, Any]], list[Published]]:
    old = {each.message_id: each for each in was or ()}
    found, sent = list[dict[str, Any]](), list[Published]()
    for each in now:
        before = old.get(each.message_id)
        if before == each:
            del old[each.message_id]
            found.append({"change": "same", "type": each.type})
            sent.append(each)
            continue
        is_new = before is None or before.type != each.type
        change = "changed" if not is_new else "new" if was is not None else "unknown"
        found.append(_output(change, each, None if is_new else before, each))
        sent.append(each._replace(headers={**each.headers, mark: NEW}))
    changed = {each["message_id"] for each in found if each["change"] == "changed"}
    found += [_output("gone", each, each, None) for each in old.values() if each.message_id not in changed]
    sent += [each._replace(headers={**each.headers, mark: GONE}) for each in old.values()]
    return found, sent


def _output(change: str, of: Published, before: Published | None, after: Published | None) -> dict[str, Any]:
    old, new = ({} if each is None else json.loads(each.body) for each in (before, after))
    return {
        "change": change,
        "type": of.type,
        "message_id": of.message_id,
        "before": before and before.body.decode(),
        "after": after and after.body.decode(),
        "fields": _fields(old, new) if before and after else [],
        "numbers": _numbers(old, new),
    }


def _fields(before: Any, after: Any) -> list[dict[str, str]]:  # noqa: ANN401 - any JSON values
    found = changes(before, after)
    return [{"field": each.field, "before": shown(each.before), "after": shown(each.after)} for each in found]


def _numbers(before: Any, after: Any) -> list[dict[str, str]]:  # noqa: ANN401 - any JSON values
    """Return the fields whose sums of numbers, over all items of lists, differ, with the two sums as text.

    Numeric texts are included if at least one in the same field has a decimal point.
    """
    sides = [list(_leaves(each)) for each in (before, after)]
    decimals = {path for side in sides for path, value in side if isinstance(value, str) and "." in value}
    old, new = dict[str, int | Decimal](), dict[str, int | Decimal]()
    for sums, side in zip((old, new), sides, strict=True):
        for path, value in side:
            if isinstance(value, int) or path in decimals:
                sums[path] = sums.get(path, 0) + (Decimal(value) if isinstance(value, str) else value)
    both = [(name, old.get(name, 0), new.get(name, 0)) for name in {**old, **new}]
    return [{"field": name, "before": str(was), "after": str(now)} for name, was, now in both if was != now]


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, int | str]]:  # noqa: ANN401 - any JSON value
    match value:
        case bool():
            return
        case int():
            yield path, value
        case str() if _NUMBER.fullmatch(value):
            yield path, value
        case list():
            for each in value:
                yield from _leaves(each, path)
        case dict():
            for name, each in value.items():
                yield from _leaves(each, f"{path}.{name}" if path else name)
