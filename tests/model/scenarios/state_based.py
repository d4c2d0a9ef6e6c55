"""Messages off a queue, and batches of them, with the state-based algorithm.

The steps of a batch are those of its driver, in their order, for one stream. What Spark does is left out: an attempt
handles the messages and publishes the outputs itself, and whichever attempt comes to the end first finishes the batch.
"""

import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from eventstore import ANY_ETAG, ConcurrencyConflictError, Operation, StoreUnavailableError, Stream
from eventstore.header import header_row
from handlers import App, Context
from handlers.context import _pack
from handlers.draws import Seed
from runtime import Processor
from runtime.algorithms.state_based import algorithm, decide
from runtime.algorithms.state_based.algorithm import StateBased, StateBasedOneByOne
from runtime.algorithms.state_based.decide import Decider
from runtime.algorithms.state_based.draft import CommitDraft
from runtime.algorithms.state_based.replay import Replayer
from runtime.clock import Clock
from runtime.ledger import ledger
from runtime.ledger.batch import BatchContext
from runtime.ledger.ledger import Ledger
from runtime.ledger.settings import TableSettings
from runtime.messages.envelope import Envelope, id_key
from runtime.messages.outcome import Outcome, Status
from runtime.messages.parsing import prepare
from runtime.retries import RetryPolicy
from runtime.versions import index, limits
from runtime.versions import stream as state_stream
from runtime.versions.stream import LoadedVersions, load
from tests.model import invariants
from tests.model.book import BOOK, Handled, app, committed_versions, count, refused_of, two_handlers, write
from tests.model.calls import SteppedTable, publish
from tests.model.facts import Limit, Scenario, count_of
from tests.model.histories import Job
from tests.model.mistakes import ALONE, ALONE_CRASH, CRASH, Mistakes, Plant, both, giving, instead_of
from tests.model.processes import NOW, Dependencies, Process
from tests.model.world import Bounds


async def no_pause(seconds: float) -> None:
    """Try again at once: how long others take is the explorer's choice."""


PATIENCE = RetryPolicy(sleep=no_pause)

RUNS: list[Limit] = [(limits, "MAX_SEGMENT_BYTES", 0)]
"""Each commit becomes a run, in a row of its own."""
FULL_TAIL: list[Limit] = [(limits, "MAX_TAIL_BYTES", 1)]
"""The tail is full after each commit: the next one turns it into a run."""
MIXED: list[Limit] = [(limits, "MAX_SEGMENT_BYTES", 400), (limits, "MAX_TAIL_BYTES", 400)]
"""A tail takes two commits or so; then it becomes a run."""
PARTS: list[Limit] = [*RUNS, (limits, "MAX_TRANSACTION_RUNS", 1), (limits, "MAX_RUN_VERSIONS", 1)]
"""A transaction takes one version."""
ONE_TOKEN: list[Limit] = [(ledger, "uuid", SimpleNamespace(uuid4=lambda: UUID(int=0)))]
"""The token of a batch is drawn when it begins; here it is always the same, as nothing hangs on it."""

Fold = Callable[[SteppedTable, Clock, BatchContext, Sequence[Envelope]], Awaitable[list[Outcome]]]
"""Handles the messages of a batch."""


def state_based(name, jobs, earlier=(), invariants=invariants.ALL, limits=()) -> Scenario:
    return Scenario(name, jobs, invariants, committed_versions, earlier, limits)


def deliver(message: Envelope, copies: int = 1, app: App = app) -> Job:
    """Return the job of handling a message, which is delivered so many times."""
    return Job(message.message_id, partial(_process, app, message), copies)


def messages(*lines: str, copies: int = 1) -> Scenario:
    """Return the scenario of some different lines, each delivered so many times."""
    name = f"{len(lines)} message{'s' * (len(lines) > 1)}, {count_of(copies)}"
    return state_based(name, [deliver(write(line), copies) for line in lines])


async def _process(app: App, message: Envelope, process: Process) -> Handled:
    processor = Processor(
        app, SteppedTable(), publish, clock=process.clock, retries=PATIENCE, settings=TableSettings()
    )
    refused = refused_of(await processor.process(message))
    return Handled(() if refused else (message.message_id,), refused=refused)


async def fold_scribe(table, clock, batch, messages) -> list[Outcome]:
    (handler,) = app.handlers.values()
    algorithm = StateBased(table, handler, clock, batch, PATIENCE)
    return list(await algorithm.process(BOOK, [prepare(handler, BOOK, message) for message in messages]))


def task(batch_id, *messages, copies=1, now=NOW, fold=fold_scribe, **options) -> Job:
    """Return the job of handling the messages of a batch, attempted so many times by processes that live `now`.

    `options` are those of `BatchContext`.
    """
    batch = BatchContext(batch_id, **options)
    return Job(batch_id, partial(_attempt, batch, messages, now, fold), copies)


async def _attempt(batch, messages, now, fold, process) -> Handled:
    table, clock = SteppedTable(), Process(process.number, now).clock
    ledger_ = Ledger(table, clock, PATIENCE)
    record = await ledger_.begin(batch.batch_id or "", "input", "out")
    if record.is_finished:
        return Handled()
    handled = Handled()
    if record.rounds == 0:
        context = replace(batch, open_batches=await ledger_.open_batches(), number=record.number)
        outcomes = await fold(table, clock, context, messages)
        await table.barrier()
        for outcome in outcomes:
            for output in outcome.outputs:
                await publish(output)
        record = await ledger_.commit_round(record, 0, {}, 0)
        handled = _handled(outcomes)
    await ledger_.publish(record)
    return handled


def _handled(outcomes: Sequence[Outcome]) -> Handled:
    decided = [outcome for outcome in outcomes if outcome.version is not None or outcome.is_dead_letter]
    return Handled(
        tuple(outcome.envelope.message_id for outcome in decided if outcome.version is not None),
        tuple(f"{each.envelope.message_id} {each.reason or each.status}" for each in decided),
        refused_of(decided),
        tuple(each.envelope.message_id for each in outcomes if each.status is Status.TOO_LATE),
    )


_X, _Y = write("x"), write("y")

BEGUN = state_based("2 messages for a book with lines", [deliver(_X), deliver(_Y)], [deliver(write("a"))])
COUNTED = state_based("a message that changes nothing, and one that does", [deliver(count("c")), deliver(_X)])
FILLED = replace(BEGUN, name="2 messages for a book whose tail is full", limits=FULL_TAIL)
ATTEMPTS = state_based(
    "2 attempts of a batch with a copy in it", [task("batch-1", _X, _Y, _X, copies=2)], limits=ONE_TOKEN
)
IN_PARTS = state_based(
    "a batch with a copy in it, in parts of one version, beside a message",
    [task("batch-1", _X, _Y, _X), deliver(_Y)],
    limits=[*ONE_TOKEN, *PARTS],
)
BATCHES = state_based(
    "2 batches with a message in common",
    [task("batch-1", _X, _Y), task("batch-2", _Y)],
    earlier=[task("batch-0")],
    limits=ONE_TOKEN,
)


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
    state_based("1 message, 2 handlers", [deliver(write("x"), app=two_handlers)]),
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
@instead_of(algorithm, "append")
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
    patch.setattr(algorithm, "READ_AGAIN", (StoreUnavailableError,))


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
@instead_of(algorithm, "append")
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
