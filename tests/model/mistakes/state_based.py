"""Mistakes of the state-based algorithm: what handlers are given, the order of steps, batches, and truncation."""

import random
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from eventstore import ANY_ETAG, ConcurrencyConflictError, Operation, StoreUnavailableError, Stream
from eventstore import writing as event_truncation
from eventstore.header import header_row
from eventstore.writing import transact
from handlers import Context
from handlers.context import _pack
from handlers.draws import Seed
from runtime import Processor
from runtime.algorithms.algorithm import publish_all
from runtime.algorithms.state_based import algorithm as state_based
from runtime.algorithms.state_based import decide, truncation
from runtime.algorithms.state_based.algorithm import StateBased, StateBasedOneByOne
from runtime.algorithms.state_based.decide import Decider
from runtime.algorithms.state_based.draft import CommitDraft
from runtime.algorithms.state_based.replay import Replayer
from runtime.algorithms.state_based.truncation import Plan, TruncationRules
from runtime.ledger.batch import OpenBatches
from runtime.messages.envelope import id_key
from runtime.messages.outcome import Outcome, Status
from runtime.versions import index
from runtime.versions import stream as state_stream
from runtime.versions.stream import LoadedVersions, load
from tests.model.book import BOOK, two_handlers, write
from tests.model.calls import SteppedTable, publish
from tests.model.mistakes.mistake import ALONE, ALONE_CRASH, CRASH, Mistakes, Plant, both, giving, instead_of
from tests.model.processes import Dependencies
from tests.model.scenarios import truncation as cut
from tests.model.scenarios.state_based import (
    ATTEMPTS,
    BATCHES,
    BEGUN,
    COUNTED,
    FILLED,
    IN_PARTS,
    RUNS,
    deliver,
    messages,
)
from tests.model.scenarios.state_based import state_based as scenario
from tests.model.scenarios.truncation import long_ago, truncated_beside
from tests.model.world import Bounds

MISTAKES = Mistakes()
mistake = MISTAKES.add

_ONE, _TWICE, _TWO = messages("x"), messages("x", copies=2), messages("x", "y")
_LOSS = Bounds(losses=1, late_writes=False)
_POWER_CUT = Bounds(cuts=1)
_DIGESTS_ARE_NOT_COMPARED = giving(decide, "find_difference", None)
"""Takes away the second line of defence: a replay that gives something else is not noticed."""


# What a replay is given


def _replayed(name: str, breaks: str, plant: Plant) -> None:
    """Declare a mistake that digests show, and that breaks something else where they are not compared."""
    mistake(name, "DoneWhenAcknowledged", _ONE, ALONE_CRASH)(plant)
    undetected = both(plant, _DIGESTS_ARE_NOT_COMPARED)
    mistake(f"{name}, and digests are not compared", breaks, _ONE, ALONE_CRASH)(undetected)


def _with_other_versions(change: Any) -> Plant:
    """Have each known message replayed by what `change` makes of its version and the transaction."""

    def changed(known: Any, transaction: Any) -> Any:
        return known._replace(version=change(known.version, transaction))

    @instead_of(Decider, "_replay_all")
    def replayed(replay_all: Any, self: Any, known: Any, transaction: Any) -> None:
        replay_all(self, [changed(each, transaction) for each in known], transaction)

    return replayed


def _guid(*_: object) -> UUID:
    return UUID(bytes=Dependencies.process.draw()[:16])


def _ids_of_the_process(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Seed, "guid", _guid)
    patch.setattr(Seed, "guid_text", lambda *_: str(_guid()))


def _random_of_the_process(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Context, "random", property(lambda _: random.Random(Dependencies.process.draw())))


def _at_another_time(copy: Any) -> Any:
    record = copy.version.record._replace(now=Dependencies.process.clock())
    return copy._replace(version=copy.version._replace(record=record))


@instead_of(Replayer, "replay_all")
def _all_at_another_time(replay_all: Any, self: Any, copies: Any) -> Any:
    return replay_all(self, list(map(_at_another_time, copies)))


@instead_of(Context, "capture")
def _capture_anew(_: Any, self: Any, name: str, function: Any) -> Any:
    self.captured[name] = _pack(name, value := function())
    return value


_replayed("ids are not seeded by the message", "ConsistentOutput", _ids_of_the_process)
_replayed("random numbers are not seeded by the message", "ConsistentOutput", _random_of_the_process)
_replayed("the recorded time is not replayed", "NoGhost", _all_at_another_time)
_replayed("captured values are not replayed", "ConsistentOutput", _capture_anew)
_replayed(
    "a duplicate is replayed on the latest state",
    "NoGhost",
    _with_other_versions(lambda version, transaction: version._replace(before=transaction.before)),
)


@mistake(
    "ids are seeded by the message id alone",
    "ConsistentOutput",
    scenario("1 message, 2 handlers", [deliver(write("x"), app=two_handlers)]),
    ALONE,
)
@instead_of(Seed, "__init__")
def _(seeded: Any, self: Any, message_id: str, *_: object) -> None:
    seeded(self, message_id, "", "")


# The steps, their conditions, and what is made of a refusal or a time-out


@mistake("published before the append", "NoGhost", _ONE)
@instead_of(StateBased, "store")
async def publish_first(store: Any, self: Any, history: Any, sealed: Any) -> Any:
    for outcome in sealed.outcomes:
        for output in outcome.outputs:
            await publish(output)
    return await store(self, history, sealed)


@mistake("only state changes are recorded", "NoGhost", COUNTED)
@instead_of(StateBased, "store")
async def _(store: Any, self: Any, history: Any, sealed: Any) -> Any:
    if sealed.update is None or sealed.update.head.state == history.newest.encoded:
        return history
    return await store(self, history, sealed)


@mistake("appended without checking the ETag", "NoLostUpdate", BEGUN)
@instead_of(state_based, "append")
def _(append: Any, history: Any, new: Any) -> Any:
    if history.stream.etag is not None:
        history = history._replace(stream=replace(history.stream, etag=ANY_ETAG))
    return append(history, new)


@mistake("a stream is begun without checking that there is none", "NoLostUpdate", _TWO)
@instead_of(state_stream, "_write_header")
async def _(write_header: Any, stream: Any, own: Any, includes: Any) -> Any:
    if stream.etag is not None:
        return await write_header(stream, own, includes)
    operation = Operation.insert_or_replace(stream.partition.header, header_row(0, 1, own))
    (etag,) = await stream.partition.table.transact(stream.partition.key, [operation])
    return replace(stream, etag=etag, properties=own)


@mistake("after a lost race only the ETag is read again", "NoLostUpdate", BEGUN)
@instead_of(StateBased, "store")
async def _(store: Any, self: Any, history: Any, sealed: Any) -> Any:
    try:
        return await store(self, history, sealed)
    except ConcurrencyConflictError:
        now = await load(self.table, self.handler, BOOK, ())
        return await store(self, history._replace(stream=now.stream), sealed)


@instead_of(Processor, "_handle")
async def _a_conflict_is_the_end(handle: Any, self: Any, route: Any, message: Any, *given: Any) -> Any:
    try:
        return await handle(self, route, message, *given)
    except ConcurrencyConflictError:
        return Outcome(message, route.handler, BOOK, Status.DUPLICATE)


@mistake("a conflict is an error", "NoError", _TWO)
def _conflicts_are_raised(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(state_based, "READ_AGAIN", (StoreUnavailableError,))


mistake("a conflict is taken for success", "DoneWhenAcknowledged", _TWO)(
    both(_conflicts_are_raised, _a_conflict_is_the_end)
)


@mistake("a lost answer is taken for success", "NoGhost", _ONE, _LOSS)
@instead_of(StateBased, "store")
async def _(store: Any, self: Any, history: Any, sealed: Any) -> Any:
    try:
        return await store(self, history, sealed)
    except StoreUnavailableError:
        return history


@mistake("a stored message id is taken for one's own append", "NoGhost", _TWICE, _LOSS)
@instead_of(StateBased, "store")
async def _(store: Any, self: Any, history: Any, sealed: Any) -> Any:
    try:
        return await store(self, history, sealed)
    except StoreUnavailableError:
        ids = {id_key(outcome.envelope.message_id) for outcome in sealed.outcomes}
        now = await load(self.table, self.handler, BOOK, ids)
        if not all(map(now.found.find, ids)):
            raise
        return now


@mistake("duplicates publish nothing", "DoneWhenAcknowledged", _ONE, CRASH)
@instead_of(CommitDraft, "conclude")
def _(conclude: Any, self: Any, key: Any, status: Any, version: Any, published: Any) -> None:
    conclude(self, key, status, version, () if status is Status.DUPLICATE else published)


mistake("duplicates are not looked for", "AtMostOneStateChange", _ONE, CRASH)(
    giving(LoadedVersions, "find", None)
)
mistake(
    "only the tail is searched for duplicates",
    "AtMostOneStateChange",
    replace(_ONE, name="1 message, in a row", limits=RUNS),
    CRASH,
)(giving(index, "candidates", ()))


@mistake("a full tail is emptied before its run is written", "NoLostUpdate", FILLED)
@instead_of(state_based, "append")
async def _(append: Any, history: Any, new: Any) -> Any:
    if history.head.tail is not None:
        properties = history.head._replace(tail=None).properties()
        history = history._replace(stream=await Stream.set_properties(history.stream, properties))
    return await append(history, new)


@mistake("an error while publishing is ignored", "DoneWhenAcknowledged", _ONE, _LOSS)
@instead_of(Processor, "__init__")
def _(begin: Any, self: Any, app: Any, table: Any, publish: Any, **given: Any) -> None:
    async def publish_perhaps(output: Any) -> None:
        try:
            await publish(output)
        except StoreUnavailableError:
            return

    begin(self, app, table, publish_perhaps, **given)


@mistake("nothing is made durable", "NoGhost", _ONE, _POWER_CUT)
@instead_of(SteppedTable, "barrier")
async def _(*_: object) -> None:
    """Leave it to the machine when it writes to its disk."""


@mistake("what a duplicate finds is not made durable", "NoGhost", _TWICE, _POWER_CUT)
@instead_of(StateBasedOneByOne, "process")
async def _(_: Any, self: Any, message: Any, **__: Any) -> Any:
    (outcome,) = await self.algorithm.process(message.business_id, [message])
    if outcome.status is Status.PROCESSED:
        await self.algorithm.table.barrier()
    for output in outcome.outputs:
        await self.publish(output)
    return outcome


@mistake("the recorded time goes back", "NoLostUpdate", _TWO)
@instead_of(CommitDraft, "__init__")
def _(begin: Any, self: Any, *given: Any, **named: Any) -> None:
    begin(self, *given, **named)
    self.last_now = 0


# Batches: several deliveries at once, and attempts that must agree


@mistake("what an earlier transaction stored is forgotten", "AtMostOneStateChange", IN_PARTS, ALONE)
@instead_of(CommitDraft, "seal")
def _(seal: Any, *given: Any) -> Any:
    return seal(*given)._replace(appended={})


mistake("versions do not record their batch", "AttemptsAgree", ATTEMPTS)(
    _with_other_versions(lambda version, _: version._replace(batch=None))
)


@instead_of(CommitDraft, "seal")
def _all_versions_are_appended(seal: Any, self: Any, *given: Any) -> Any:
    sealed = seal(self, *given)
    added = {key: self._version(position) for key, position in self._positions.items()}
    return sealed._replace(appended={**self._history.appended, **added})


@instead_of(StateBased, "invoke")
def _what_was_refused_is_kept(invoke: Any, self: Any, decider: Any, history: Any, *given: Any) -> Any:
    kept = {**getattr(self, "kept", {}), **history.appended}
    sealed = invoke(self, decider, history._replace(appended=kept), *given)
    self.kept = sealed.appended
    return sealed


mistake("outcomes of a lost race are kept", "NoGhost", BATCHES)(
    both(_all_versions_are_appended, _what_was_refused_is_kept)
)


# Truncation: what it remembers, in which order it deletes, and what it must leave alone


mistake("single messages count as acknowledged", "DoneWhenAcknowledged", cut.DIED, CRASH)(
    giving(TruncationRules, "is_acknowledged", value=True)
)


@mistake("a consumer's batch that is open counts as ended", "DoneWhenAcknowledged", cut.CONSUMED, ALONE_CRASH)
@instead_of(OpenBatches, "is_finished")
def _(_: Any, self: Any, __: Any, number: Any) -> bool:
    return number is None or number < self.next


@mistake(
    "a consumer's batch ends before the outputs are published",
    "DoneWhenAcknowledged",
    cut.CONSUMED,
    ALONE_CRASH,
)
@instead_of(StateBasedOneByOne, "process")
async def _(process: Any, self: Any, message: Any, **named: Any) -> Any:
    if self.consumer_batches is None:
        return await process(self, message, **named)
    consumer_batch = await self.consumer_batches.enter()
    numbered = self.algorithm.on_behalf_of(replace(self.algorithm.batch, number=consumer_batch.number))
    (outcome,) = await numbered.process(message.business_id, [message])
    await self.consumer_batches.leave(consumer_batch, None)
    await self.consumer_batches.flush()
    await publish_all(self.algorithm.table, self.publish, outcome.outputs)
    return outcome


@mistake("the horizon is not moved", "AtMostOneStateChange", cut.LATE)
@instead_of(truncation, "_moved")
def _(moved: Any, head: Any, *given: Any) -> Any:
    return moved(head, *given)._replace(horizon=head.horizon)


@mistake("the horizon is moved after the delete", "AtMostOneStateChange", cut.LATE_IN_ROWS)
@instead_of(Plan, "carry_out")
async def _(cut: Any, plan: Any) -> None:
    await cut(replace(plan, head=plan.head._replace(horizon=None)))
    now = await Stream.open(plan.stream.partition)
    horizon = plan.head.properties()["Horizon"]
    await Stream.set_properties(now, {**(now.properties or {}), "Horizon": horizon})


@mistake("the horizon goes back", "AtMostOneStateChange", cut.TWICE)
@instead_of(truncation, "_moved")
def _(moved: Any, head: Any, *given: Any) -> Any:
    return moved(head._replace(horizon=None), *given)


@mistake("an unpublished batch is truncated", "NoLost", cut.UNPUBLISHED, ALONE_CRASH)
@instead_of(TruncationRules, "holder")
def _(holder: Any, self: Any, run: Any) -> Any:
    return holder(replace(self, open_batches=OpenBatches(2)), run)


@mistake(
    "truncated without checking the ETag",
    "NoLostUpdate",
    truncated_beside("a message beside truncation", deliver(write("x")), earlier=long_ago("a", "b")),
)
@instead_of(Stream, "truncate")
def _(_, stream, first_version, properties=None, includes=(), rows=None) -> Any:
    unchecked = replace(stream, etag=ANY_ETAG)
    return event_truncation.truncate(unchecked, first_version, properties, includes, rows)


@mistake("rows are deleted before the watermark moves", "Readable", cut.IN_STEPS)
@instead_of(event_truncation, "_delete")
async def _(delete: Any, partition: Any, header: Any, mark: Any, doomed: Any, includes: Any = ()) -> Any:
    for row_key in doomed:
        await transact(partition, [Operation.delete(row_key)])
    return await delete(partition, header, mark, (), includes)


@mistake("nothing is cleaned up after a crash", "NoGarbage", cut.IN_STEPS, CRASH)
@instead_of(Stream, "truncate")
async def _(cut: Any, stream: Any, first_version: int, properties: Any, *given: Any) -> Any:
    return await cut(stream, first_version, properties, *given) if properties else stream
