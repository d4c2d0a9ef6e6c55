"""Handle the recorded history of a table again, with other handlers, into a second table.

The messages of a stream are handled in the order of its recorded versions, with their clock, draws and captured values.
While a message is missing, because another object publishes it, later ones are *held back*. Messages that only the new
handlers publish come after the history. A message that they no longer publish is *gone*, and its version is skipped.

While a stream equals the recorded one, the second table stores only how far it was followed (`Head.followed`,
`Head.shared`). At the first difference the equal versions are copied, and later ones are appended.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from runtime.algorithms.state_based.replay import Copy, Replayer, shown
from runtime.algorithms.state_based.transaction import CommitDraft
from runtime.ledger.batch import FORGOTTEN, NOTHING, Seen
from runtime.messages.envelope import NO_OUTPUTS, Envelope, Envelopes, IdKey, digest_outputs, id_key
from runtime.messages.outcome import Outcome, Outcomes, Output, Reason, Status, dead_letter, outputs_of
from runtime.messages.parsing import Deliveries, Delivery, Prepared, is_copy, prepare
from runtime.retries import READ_AGAIN
from runtime.versions import stream as streams
from runtime.versions.head import Head
from runtime.versions.properties import error_location
from runtime.versions.readable import changes, decode, read_state
from runtime.versions.run import Run, Version
from runtime.versions.stream import History, NewestState, StreamUpdate, append, load

NEW, GONE = "new", "gone"  # values of the header that marks an output that only one of the two runs has
VISIT = ""
"""The type of a delivery that only asks to complete a stream. Its sequence is how far the stream was followed."""

_NOT_OF_HISTORY = "It made no version of the recorded history."
_WAITS = "An earlier message of its stream has not come yet."
_OUTPUT_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")
_NUMBER = re.compile(r"-?\d{1,40}(\.\d{1,40})?(E[+-]?\d{1,2})?")


class _NewContext(Context):
    """A context with the recorded values. Other values are captured only if `captures` is set."""

    __slots__ = ("_captures",)

    def __init__(self, *given: Any, captures: bool, **named: Any) -> None:  # noqa: ANN401 - a context's
        super().__init__(*given, **named)
        self._captures = captures

    def capture(self, name: str, function: Callable[[], Any]) -> Any:  # noqa: ANN401 - plain data of any kind
        recorded = self._recorded or {}
        if name in recorded:
            return super().capture(name, function)
        if not self._captures or name.startswith(DOCUMENT):
            raise CaptureError(f"{name!r} was not captured when the message was first handled.")
        self._recorded = None
        try:
            return super().capture(name, function)
        finally:
            self._recorded = recorded


class _Step(NamedTuple):
    """What a stream does next: handle a message, or skip a recorded version whose message is gone."""

    version: Version | None  # None for a message that only the new handlers publish
    position: int | None  # of the delivery; None: gone
    was: Envelope | None  # the message that made the version, if it differs or is gone


class _Made(NamedTuple):
    """The result of handling a message. `after` is None if the handler failed."""

    after: bytes | None
    published: Sequence[Published] = ()
    error: str | None = None


@dataclass(eq=False, repr=False)
class Reprocessor:
    """Handles recorded histories of one handler again, one stream at a time. A `BatchAlgorithm`."""

    algorithm: StateBased  # of the second table
    recorded: Table
    was: HandlerDefinition  # with the methods that made the history, if they are known
    has: Callable[[Version], bool] = field(default=lambda _: True, kw_only=True)  # the versions to follow
    captures: bool = field(default=False, kw_only=True)  # values that were not recorded
    closes: bool = field(default=False, kw_only=True)  # whether outputs that have not come are gone
    mark: str = field(default="consistent-mark", kw_only=True)  # the header that marks outputs as NEW or GONE

    async def process(
        self, business_id: str, deliveries: Sequence[Delivery], seen: Seen = NOTHING
    ) -> Sequence[Outcome]:
        """Follow the recorded stream as far as its messages are available.

        Return a `duplicate` for each message that makes the recorded state and outputs, otherwise `processed` with the
        differences as JSON in `error`.
        """
        retries = self.algorithm.retries.start()
        while True:
            try:
                key = streams.stream_partition(
                    self.algorithm.table, self.algorithm.handler.name, business_id
                ).key
                with error_location(self.algorithm.table, key):
                    return await _Stream(self, business_id, Deliveries.of(deliveries)).follow()
            except InvalidKeyError:
                return await self.algorithm.process(business_id, deliveries, seen)
            except READ_AGAIN as error:
                await retries.pause(error)


class _Stream:
    """A stream of the second table while it follows the recorded stream."""

    def __init__(self, of: Reprocessor, business_id: str, deliveries: Deliveries) -> None:
        self._of = of
        self._algorithm, self._handler = of.algorithm, of.algorithm.handler
        self._business_id = business_id
        # The headers lose their marks, and another attempt needs them.
        headers = list(deliveries.envelopes.headers)
        self._deliveries = replace(deliveries, envelopes=replace(deliveries.envelopes, headers=headers))
        self._envelopes: list[Envelope] = []
        self._outcomes = Outcomes(Envelopes(), self._handler.name, business_id)
        self._recorded: tuple[Head, Sequence[Run]] = (Head(None, self._handler.codec.version), ())
        self._versions: Sequence[Version] = ()
        self._chosen: dict[IdKey, int] = {}  # the position of the delivery to take
        self._new: set[IdKey] = set()
        self._late: set[IdKey] = set()
        self._visited_at: int | None = None  # how far the stream was followed when it was to be completed
        self._were: dict[IdKey, Envelope] = {}  # messages of the recorded run that changed or are gone

    async def follow(self) -> Outcomes:
        read = await streams.read_whole(self._of.recorded, self._handler.name, self._business_id)
        if read is not None:
            self._recorded = read
            versions = (version for run in read[1] for version in run.all())
            self._versions = list(takewhile(self._of.has, versions))
        if self._recorded[0].refuses:
            for envelope in self._deliveries.envelopes:
                self._add(dead_letter(envelope, Reason.FORGOTTEN, FORGOTTEN, *self._names))
            return self._done()
        self._choose()
        ids = {*self._chosen, *self._were}
        if self._visited_at is not None:
            ids.update(each.record.message_id for each in self._versions)
        history = await load(self._algorithm.table, self._handler, self._business_id, ids)
        followed = max(history.head.followed, self._recorded[0].kept_from - 1)
        self._repeat(history, followed)
        steps, is_complete = self._plan(history, followed)
        while steps:
            is_own = history.stream.etag is not None and not history.head.shared
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
            self._tell(taken, made, same, sealed.outcomes)
            steps = steps[len(taken) :]
        if is_complete and history.stream.etag is not None and not history.head.shared:
            self._tell_of_object(history)
        return self._done()

    @property
    def _names(self) -> tuple[str, str]:
        return self._handler.name, self._business_id

    def _choose(self) -> None:
        mark, recorded = self._of.mark, {each.record.message_id: each.record for each in self._versions}
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
                self._new.add(key)
            is_exact = (
                key not in recorded
                or not isinstance(delivery, Prepared)
                or is_copy(delivery, recorded[key].fingerprint)
            )
            if not is_exact and not is_cascade:
                error = "Another message with its id made a version of the recorded history."
                self._add(Outcome(envelope, *self._names, Status.TOO_LATE, None, error))
            elif key not in self._chosen:
                self._chosen[key] = position
            else:
                if is_exact and marked is None and key in self._new:
                    self._chosen[key] = position
                self._repeated(envelope)

    def _plan(self, history: History, followed: int) -> tuple[list[_Step], bool]:
        """Return the steps that are possible now, and whether they complete the history. Hold back other messages."""
        steps, is_complete = list[_Step](), True
        chosen, were = dict(self._chosen), dict(self._were)
        for version in self._versions:
            key = version.record.message_id
            position, was = chosen.pop(key, None), were.pop(key, None)
            if version.number <= followed:
                continue
            is_gone = was is not None or (self._of.closes and is_made_by_handler(version.message_id))
            if position is None and not is_gone:
                is_complete = False
                break
            steps.append(_Step(version, position, was))
        recorded = {each.record.message_id for each in self._versions}
        for key, position in self._chosen.items():
            is_due = key in self._late if key in recorded else key in self._new and not history.has(key)
            if not is_due and key not in chosen.keys() & recorded:
                continue
            if is_complete:
                steps.append(_Step(None, position, None))
            else:
                self._hold_back(self._deliveries[position].envelope, NEW if key in self._new else None)
        if not is_complete:
            for key in were.keys() & recorded:
                self._hold_back(were[key], GONE)
        return steps, is_complete

    def _hold_back(self, envelope: Envelope, marked: str | None) -> None:
        if marked is not None:
            envelope = envelope._replace(headers={**(envelope.headers or {}), self._of.mark: marked})
        self._add(dead_letter(envelope, Reason.HELD_BACK, _WAITS, *self._names))

    def _borrowed(self, history: History, followed: int) -> History:
        """Return a history that ends with the recorded state after a version. Never append to this history."""
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
            return _NewContext(*given, recorded=recorded, captures=self._of.captures, **named)

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
                end = first + 1  # a new message alone, as it takes its time from the draft
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
        """Add again the outcomes of messages that an earlier batch or an earlier attempt at this batch handled."""
        replayer, recorded = Replayer(self._handler, self._business_id), dict[IdKey, Version]()
        letters = {letter.key: letter for letter in history.letters.all}
        is_own = history.stream.etag is not None and not history.head.shared
        for each in self._versions:
            key = each.record.message_id
            recorded[key] = each
            told_before = self._visited_at is None or each.number <= self._visited_at
            if not is_own or each.number > followed or history.has(key) or key in letters:
                continue
            if key not in self._chosen and (key in self._were or not told_before):
                self._tell_of(_Step(each, None, self._were.get(key)), _Made(None), None, 0)
        for key, position in self._chosen.items():
            version, delivery = recorded.get(key), self._deliveries[position]
            own = history.find(key)
            if version is None and own is None and key not in self._new:
                self._add(Outcome(delivery.envelope, *self._names, Status.TOO_LATE, None, _NOT_OF_HISTORY))
            if own is None and (version is None or version.number > followed):
                continue
            step, stored = _Step(version, position, self._were.get(key)), own if is_own else version
            if stored is None and key not in letters and isinstance(delivery, Prepared):
                self._late.add(key)  # its version was skipped before it came
                continue
            if stored is None or not isinstance(delivery, Prepared):
                letter = letters.get(key)
                reason = Reason.REPLAY_FAILED if letter is None else letter.reason
                error = "" if letter is None else letter.error
                self._tell_of(step, _Made(None, (), error), 0, 0)
                self._add(dead_letter(delivery.envelope, reason, error, *self._names))
                continue
            newest = self._handler.routes[delivery.envelope.type].newest
            stored = stored._replace(record=stored.record._replace(revision=newest))
            replayed = replayer.replay(Copy.of(delivery, stored))
            made = _Made(replayed.after, replayed.published)
            if self._is_same(version, made):
                self._repeated(delivery.envelope, stored.number, stored.record.now, made.published)
            else:
                self._tell_of(step, made, stored.number, stored.record.now)

    # The outcomes, with the differences as JSON.

    def _add(self, outcome: Outcome) -> None:
        self._envelopes.append(outcome.envelope)
        self._outcomes.refuse(outcome)

    def _repeated(
        self, envelope: Envelope, version: int | None = None, now: int = 0, sent: Sequence[Published] = ()
    ) -> None:
        """Add the outcome of a message that makes the recorded state and outputs, or of a copy (no `version`)."""
        self._envelopes.append(envelope)
        self._outcomes.conclude(Status.DUPLICATE, version, now, sent)

    def _done(self) -> Outcomes:
        self._outcomes.envelopes = Envelopes.of(self._envelopes)
        return self._outcomes

    def _tell(
        self, steps: Sequence[_Step], made: Sequence[_Made], same: Sequence[bool], outcomes: Outcomes
    ) -> None:
        at = 0
        for step in steps:
            if step.position is None:
                self._tell_of(step, _Made(None), None, 0)
                continue
            number, now = outcomes.versions[at], outcomes.nows[at]
            envelope = self._deliveries.envelopes[step.position]
            if same[at]:
                self._repeated(envelope, number, now, made[at].published)
            else:
                self._tell_of(step, made[at], number, now)
                if at in outcomes.refused:
                    self._add(outcomes.refused[at])
            at += 1

    def _tell_of(self, step: _Step, made: _Made, number: int | None, now: int) -> None:
        version, state, fields = step.version, "new" if step.version is None else "gone", []
        if step.position is None:
            kind = "" if version is None else version.record.type
            envelope = step.was or Envelope(version.message_id if version is not None else "", kind, "")
        else:
            envelope = self._deliveries.envelopes[step.position]
            state = state if made.error is None else "refused"
        if version is not None and made.after is not None:
            before = self._handler.codec.upcast(version.after, version.schema)
            fields = changes(decode(before), decode(made.after))
            state = "changed" if fields else "same"
        was = () if version is None else self._published_before(version, step.was or envelope)
        outputs, marked = _compare(was, made.published, self._of.mark)
        moment = now or (version.record.now if version is not None else 0)
        document = {
            "state": state,
            "was": None if version is None else version.number,
            "error": made.error,
            "now": moment,
            "fields": [_field(each.field, each.before, each.after) for each in fields],
            "outputs": outputs,
        }
        sent = outputs_of(marked, number or (version.number if version is not None else 0), moment)
        self._add(self._differing(envelope, document, None if made.after is None else number, sent))

    def _differing(
        self,
        envelope: Envelope,
        document: Mapping[str, Any],
        number: int | None,
        outputs: tuple[Output, ...] = (),
    ) -> Outcome:
        text = json.dumps(document, ensure_ascii=False)
        return Outcome(envelope, *self._names, Status.PROCESSED, None, text, number, outputs)

    def _published_before(self, version: Version, envelope: Envelope) -> Sequence[Published] | None:
        """Return the recorded outputs of a version, or `None` if the code that made the version is unknown."""
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

    def _tell_of_object(self, history: History) -> None:
        """Add an outcome without a message for a final state that differs from the recorded one."""
        before, after = self._handler.initial, history.newest.encoded
        if self._versions:
            before = self._handler.codec.upcast(self._versions[-1].after, self._versions[-1].schema)
        old, new = decode(before), decode(after)
        fields = [_field(each.field, each.before, each.after) for each in changes(old, new)]
        document = {"state": "object", "fields": fields, "numbers": _numbers(old, new)}
        self._add(self._differing(Envelope("", "", ""), document, history.head.versions))


def is_made_by_handler(message_id: str) -> bool:
    """Return whether a message id has the form of the ids of outputs: a UUID of version 8."""
    return _OUTPUT_ID.fullmatch(message_id) is not None


def _beginning(steps: Sequence[_Step], count: int) -> Sequence[_Step]:
    """Return the first steps, with up to `count` messages and the skipped versions after them."""
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
    documents, sent = [], []
    for each in now:
        before = old.get(each.message_id)
        if before == each:
            del old[each.message_id]
            documents.append({"change": "same", "type": each.type})
            sent.append(each)
            continue
        if before is not None and before.type == each.type:
            documents.append(_output("changed", before, each))
        else:
            documents.append(_output("new" if was is not None else "unknown", None, each))
        sent.append(each._replace(headers={**each.headers, mark: NEW}))
    changed = {each["message_id"] for each in documents if each["change"] == "changed"}
    for each in old.values():
        if each.message_id not in changed:
            documents.append(_output("gone", each, None))
        sent.append(each._replace(headers={**each.headers, mark: GONE}))
    return documents, sent


def _output(change: str, before: Published | None, after: Published | None) -> dict[str, Any]:
    one = after or before
    if one is None:
        raise AssertionError("An output is on one side at least.")
    old, new = ({} if each is None else json.loads(each.body) for each in (before, after))
    fields = changes(old, new) if before and after else ()
    return {
        "change": change,
        "type": one.type,
        "message_id": one.message_id,
        "before": before and before.body.decode(),
        "after": after and after.body.decode(),
        "fields": [_field(each.field, each.before, each.after) for each in fields],
        "numbers": _numbers(old, new),
    }


def _field(name: str, before: Any, after: Any) -> dict[str, str]:  # noqa: ANN401 - any JSON values
    return {"field": name, "before": shown(before), "after": shown(after)}


def _numbers(before: Any, after: Any) -> list[dict[str, str]]:  # noqa: ANN401 - any JSON values
    """Return the sums that differ, by field. Numeric text counts if either side has a point, unlike ids of digits."""
    sides = Counter[str](), Counter[str]()
    texts = Counter[str](), Counter[str]()
    decimals = set[str]()
    for value, sums, of_text in zip((before, after), sides, texts, strict=True):
        _add_up(value, "", sums, of_text, decimals)
    for sums, of_text in zip(sides, texts, strict=True):
        sums.update({name: of_text[name] for name in decimals})
    old, new = sides
    return [
        {"field": name, "before": str(old[name]), "after": str(new[name])}
        for name in {**old, **new}
        if old[name] != new[name]
    ]


def _add_up(value: Any, path: str, sums: Counter[str], texts: Counter[str], decimals: set[str]) -> None:  # noqa: ANN401 - any JSON value
    match value:
        case bool():
            return
        case int():
            sums[path] += value
        case str() if _NUMBER.fullmatch(value):
            texts[path] += Decimal(value)  # type: ignore[assignment] # a counter of any numbers
            if "." in value:
                decimals.add(path)
        case list():
            for each in value:
                _add_up(each, path, sums, texts, decimals)
        case dict():
            for name, each in value.items():
                _add_up(each, f"{path}.{name}" if path else name, sums, texts, decimals)
