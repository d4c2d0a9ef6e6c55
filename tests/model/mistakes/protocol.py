"""Mistakes of the algorithm: the order of its steps, its conditions, and what it makes of a refusal or a time-out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from eventstore import ANY_ETAG, ConcurrencyConflictError, Operation, StoreUnavailableError, Stream
from eventstore.header import header_row
from runtime import Processor
from runtime.algorithms.state_based.decide import Fold
from runtime.messages.envelope import Envelope
from runtime.messages.outcome import Outcome, Output, Status
from runtime.storage import stream as state_stream
from runtime.storage.stream import LoadedStream, load_state
from tests.model.algorithm import state_based
from tests.model.calls import SteppedTable, publish
from tests.model.mistakes.mistake import Mistake
from tests.model.scenarios.state_based import FULL_TAIL, RUNS, StateBasedScenario, deliver, messages
from tests.model.scribe import BOOK, count, write
from tests.model.world import Bounds

StateBased: Any = state_based.StateBased


def _publish_first(patch: pytest.MonkeyPatch) -> None:
    store = StateBased.store_state

    async def publish_and_store(self: Any, stream: Any, part: Any) -> None:
        for outcome in part.outcomes:
            for output in outcome.outputs:
                await publish(output)
        await store(self, stream, part)

    patch.setattr(StateBased, "store_state", publish_and_store)


def _record_only_changes(patch: pytest.MonkeyPatch) -> None:
    store = StateBased.store_state

    async def store_changes(self: Any, stream: Any, part: Any) -> None:
        if part.before != stream.head.state:
            await store(self, stream, part)

    patch.setattr(StateBased, "store_state", store_changes)


def _append_whatever_is_there(patch: pytest.MonkeyPatch) -> None:
    append = state_stream.append

    async def append_anyway(loaded: Any, addition: Any) -> None:
        if loaded.stream.etag is not None:
            loaded.stream = replace(loaded.stream, etag=ANY_ETAG)
        await append(loaded, addition)

    patch.setattr(state_based, "append", append_anyway)


def _begin_whatever_is_there(patch: pytest.MonkeyPatch) -> None:
    write_header: Any = state_stream._write_header

    async def write_anyway(stream: Any, head: Any) -> Any:
        if stream.etag is not None:
            return await write_header(stream, head)
        properties = header_row(0, 1, head.properties())
        operation = Operation.insert_or_replace(stream.partition.header, properties)
        (etag,) = await stream.partition.table.transact(stream.partition.key, [operation])
        return replace(stream, etag=etag, properties=properties)

    patch.setattr(state_stream, "_write_header", write_anyway)


def _only_the_etag_is_read_again(patch: pytest.MonkeyPatch) -> None:
    store = StateBased.store_state

    async def store_on_any(self: Any, stream: Any, part: Any) -> None:
        try:
            await store(self, stream, part)
        except ConcurrencyConflictError:
            stream.stream = (await load_state(self.table, self.handler, BOOK, ())).stream
            await store(self, stream, part)

    patch.setattr(StateBased, "store_state", store_on_any)


def _a_conflict_is_the_end(patch: pytest.MonkeyPatch) -> None:
    handle: Any = Processor._handle

    async def handle_once(self: Any, handler: Any, route: Any, message: Envelope) -> Outcome:
        try:
            outcome: Outcome = await handle(self, handler, route, message)
        except ConcurrencyConflictError:
            return Outcome(message, handler.name, BOOK, Status.DUPLICATE)
        return outcome

    patch.setattr(state_based, "_READ_AGAIN", (StoreUnavailableError,))
    patch.setattr(Processor, "_handle", handle_once)


def _a_conflict_is_an_error(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(state_based, "_READ_AGAIN", (StoreUnavailableError,))


def _no_answer_means_stored(patch: pytest.MonkeyPatch) -> None:
    store = StateBased.store_state

    async def store_surely(self: Any, stream: Any, part: Any) -> None:
        try:
            await store(self, stream, part)
        except StoreUnavailableError:
            return

    patch.setattr(StateBased, "store_state", store_surely)


def _ones_id_means_ones_version(patch: pytest.MonkeyPatch) -> None:
    store = StateBased.store_state

    async def store_and_look(self: Any, stream: Any, part: Any) -> None:
        try:
            await store(self, stream, part)
        except StoreUnavailableError:
            found = await load_state(self.table, self.handler, BOOK, set(part.fresh))
            if not part.fresh.keys() <= found.places.keys():
                raise

    patch.setattr(StateBased, "store_state", store_and_look)


def _duplicates_are_silent(patch: pytest.MonkeyPatch) -> None:
    handle: Any = Fold._handle_duplicate
    patch.setattr(Fold, "_handle_duplicate", lambda *given: handle(*given)._replace(outputs=()))


def _nothing_is_known(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LoadedStream, "find", lambda *_: None)


def _only_the_tail_is_looked_at(patch: pytest.MonkeyPatch) -> None:
    async def find_nothing(*_: object) -> None:
        """Leave the runs alone."""

    patch.setattr(state_stream, "_find_in_runs", find_nothing)


def _a_full_tail_is_emptied_first(patch: pytest.MonkeyPatch) -> None:
    append = state_stream.append

    async def empty_and_append(loaded: Any, addition: Any) -> None:
        if loaded.head.tail is not None:
            properties = replace(loaded.head, tail=None).properties()
            loaded.stream = await Stream.set_properties(loaded.stream, properties)
        await append(loaded, addition)

    patch.setattr(state_based, "append", empty_and_append)


def _publishing_may_fail(patch: pytest.MonkeyPatch) -> None:
    class Careless(Processor):
        def __init__(self, app: Any, table: Any, publish: Any, **given: Any) -> None:
            async def publish_perhaps(output: Output) -> None:
                try:
                    await publish(output)
                except StoreUnavailableError:
                    return

            super().__init__(app, table, publish_perhaps, **given)

    patch.setattr("tests.model.scenarios.state_based.Processor", Careless)


def _nothing_is_durable(patch: pytest.MonkeyPatch) -> None:
    async def no_barrier(_: object) -> None:
        """Leave it to the machine when it writes to its disk."""

    patch.setattr(SteppedTable, "barrier", no_barrier)


def _only_what_is_new_is_made_durable(patch: pytest.MonkeyPatch) -> None:
    async def process(self: Any, message: Any) -> Outcome:
        outcome: Outcome
        (outcome,) = await self.algorithm.process(message.business_id, [message])
        if outcome.status is Status.PROCESSED:
            await self.algorithm.table.barrier()
        for output in outcome.outputs:
            await self.publish(output)
        return outcome

    patch.setattr(state_based.StateBasedOneByOne, "process", process)


def _time_goes_back(patch: pytest.MonkeyPatch) -> None:
    begin: Any = Fold.__init__

    def begin_without_time(self: Any, *given: Any, **named: Any) -> None:
        begin(self, *given, **named)
        self.part.last_now = 0

    patch.setattr(Fold, "__init__", begin_without_time)


_ONE, _TWICE, _TWO = messages("x"), messages("x", copies=2), messages("x", "y")
_BEGUN = StateBasedScenario(
    "2 messages for a book with lines", [deliver(write("x")), deliver(write("y"))], [deliver(write("a"))]
)
_COUNTED = StateBasedScenario(
    "a message that changes nothing, and one that does", [deliver(count("c")), deliver(write("x"))]
)
_IN_A_ROW = replace(_ONE, name="1 message, in a row", limits=RUNS)
FILLED = replace(_BEGUN, name="2 messages for a book whose tail is full", limits=FULL_TAIL)
_CALM, _CRASH, _LOSS = Bounds(), Bounds(crashes=1), Bounds(losses=1, late_writes=False)
_POWER_CUT = Bounds(cuts=1)

MISTAKES = (
    Mistake("published before it is appended", _publish_first, _ONE, _CALM, "NoGhost"),
    Mistake("only changes are recorded", _record_only_changes, _COUNTED, _CALM, "NoGhost"),
    Mistake("appended whatever is there", _append_whatever_is_there, _BEGUN, _CALM, "NoLostUpdate"),
    Mistake("begun whatever is there", _begin_whatever_is_there, _TWO, _CALM, "NoLostUpdate"),
    Mistake(
        "after a lost race only the ETag is read again",
        _only_the_etag_is_read_again,
        _BEGUN,
        _CALM,
        "NoLostUpdate",
    ),
    Mistake("a conflict is taken for done", _a_conflict_is_the_end, _TWO, _CALM, "DoneWhenAcknowledged"),
    Mistake("a conflict is an error", _a_conflict_is_an_error, _TWO, _CALM, "NoError"),
    Mistake("no answer is taken for stored", _no_answer_means_stored, _ONE, _LOSS, "NoGhost"),
    Mistake(
        "one's id that is found is taken for one's version",
        _ones_id_means_ones_version,
        _TWICE,
        _LOSS,
        "NoGhost",
    ),
    Mistake("duplicates publish nothing", _duplicates_are_silent, _ONE, _CRASH, "DoneWhenAcknowledged"),
    Mistake("duplicates are not looked for", _nothing_is_known, _ONE, _CRASH, "AtMostOneStateChange"),
    Mistake(
        "only the tail is searched for duplicates",
        _only_the_tail_is_looked_at,
        _IN_A_ROW,
        _CRASH,
        "AtMostOneStateChange",
    ),
    Mistake(
        "a full tail is emptied before its run is written",
        _a_full_tail_is_emptied_first,
        FILLED,
        _CALM,
        "NoLostUpdate",
    ),
    Mistake("an error of publishing is swallowed", _publishing_may_fail, _ONE, _LOSS, "DoneWhenAcknowledged"),
    Mistake("nothing is made durable", _nothing_is_durable, _ONE, _POWER_CUT, "NoGhost"),
    Mistake(
        "what a duplicate finds is not made durable",
        _only_what_is_new_is_made_durable,
        _TWICE,
        _POWER_CUT,
        "NoGhost",
    ),
    Mistake("the time goes back", _time_goes_back, _TWO, _CALM, "NoLostUpdate"),
)
