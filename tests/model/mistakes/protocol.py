"""Mistakes of the algorithm: the order of its steps, its conditions, and what it makes of a refusal or a time-out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from eventstore import ANY_ETAG, ConcurrencyConflictError, Operation, StoreUnavailableError, Stream
from eventstore.header import header_row
from runtime import Processor
from runtime.algorithms.state_based import algorithm as state_based
from runtime.algorithms.state_based.transaction import Transaction
from runtime.messages.envelope import Envelope, id_key
from runtime.messages.outcome import Outcome, Output, Status
from runtime.versions import stream as state_stream
from runtime.versions.stream import FoundVersions, load
from tests.model.calls import SteppedTable, publish
from tests.model.mistakes.mistake import Mistake
from tests.model.scenarios.state_based import FULL_TAIL, RUNS, StateBasedScenario, deliver, messages
from tests.model.scribe import BOOK, count, write
from tests.model.world import Bounds

StateBased: Any = state_based.StateBased


def publish_first(patch: pytest.MonkeyPatch) -> None:
    store: Any = StateBased.store

    async def publish_and_store(self: Any, history: Any, folded: Any) -> Any:
        for outcome in folded.outcomes:
            for output in outcome.outputs:
                await publish(output)
        return await store(self, history, folded)

    patch.setattr(StateBased, "store", publish_and_store)


def _record_only_changes(patch: pytest.MonkeyPatch) -> None:
    store: Any = StateBased.store

    async def store_changes(self: Any, history: Any, folded: Any) -> Any:
        if folded.append is None or folded.append.head.state == history.newest.encoded:
            return history
        return await store(self, history, folded)

    patch.setattr(StateBased, "store", store_changes)


def _append_whatever_is_there(patch: pytest.MonkeyPatch) -> None:
    append = state_stream.append

    async def append_anyway(history: Any, new: Any) -> Any:
        if history.stream.etag is not None:
            history = history._replace(stream=replace(history.stream, etag=ANY_ETAG))
        return await append(history, new)

    patch.setattr(state_based, "append", append_anyway)


def _begin_whatever_is_there(patch: pytest.MonkeyPatch) -> None:
    write_header: Any = state_stream._write_header

    async def write_anyway(stream: Any, own: Any, includes: Any) -> Any:
        if stream.etag is not None:
            return await write_header(stream, own, includes)
        operation = Operation.insert_or_replace(stream.partition.header, header_row(0, 1, own))
        (etag,) = await stream.partition.table.transact(stream.partition.key, [operation])
        return replace(stream, etag=etag, properties=own)

    patch.setattr(state_stream, "_write_header", write_anyway)


def _only_the_etag_is_read_again(patch: pytest.MonkeyPatch) -> None:
    store: Any = StateBased.store

    async def store_on_any(self: Any, history: Any, folded: Any) -> Any:
        try:
            return await store(self, history, folded)
        except ConcurrencyConflictError:
            now = await load(self.table, self.handler, BOOK, ())
            return await store(self, history._replace(stream=now.stream), folded)

    patch.setattr(StateBased, "store", store_on_any)


def _a_conflict_is_the_end(patch: pytest.MonkeyPatch) -> None:
    handle: Any = Processor._handle

    async def handle_once(self: Any, route: Any, message: Envelope, *given: Any) -> Outcome:
        try:
            outcome: Outcome = await handle(self, route, message, *given)
        except ConcurrencyConflictError:
            return Outcome(message, route.handler, BOOK, Status.DUPLICATE)
        return outcome

    patch.setattr(state_based, "READ_AGAIN", (StoreUnavailableError,))
    patch.setattr(Processor, "_handle", handle_once)


def _a_conflict_is_an_error(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(state_based, "READ_AGAIN", (StoreUnavailableError,))


def _no_answer_means_stored(patch: pytest.MonkeyPatch) -> None:
    store: Any = StateBased.store

    async def store_surely(self: Any, history: Any, folded: Any) -> Any:
        try:
            return await store(self, history, folded)
        except StoreUnavailableError:
            return history

    patch.setattr(StateBased, "store", store_surely)


def _ones_id_means_ones_version(patch: pytest.MonkeyPatch) -> None:
    store: Any = StateBased.store

    async def store_and_look(self: Any, history: Any, folded: Any) -> Any:
        try:
            return await store(self, history, folded)
        except StoreUnavailableError:
            ids = {id_key(outcome.envelope.message_id) for outcome in folded.outcomes}
            now = await load(self.table, self.handler, BOOK, ids)
            if not all(map(now.found.find, ids)):
                raise
            return now

    patch.setattr(StateBased, "store", store_and_look)


def _duplicates_are_silent(patch: pytest.MonkeyPatch) -> None:
    conclude: Any = Transaction.conclude

    def without_outputs(self: Any, key: Any, status: Any, number: int, now: int, published: Any) -> None:
        conclude(self, key, status, number, now, () if status is Status.DUPLICATE else published)

    patch.setattr(Transaction, "conclude", without_outputs)


def _nothing_is_known(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FoundVersions, "find", lambda *_: None)


def _only_the_tail_is_looked_at(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(state_stream, "candidates", lambda *_: ())


def _a_full_tail_is_emptied_first(patch: pytest.MonkeyPatch) -> None:
    append = state_stream.append

    async def empty_and_append(history: Any, new: Any) -> Any:
        if history.head.tail is not None:
            properties = history.head._replace(tail=None).properties()
            stream = await Stream.set_properties(history.stream, properties)
            history = history._replace(stream=stream)
        return await append(history, new)

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
    async def process(self: Any, message: Any, **_: Any) -> Outcome:
        outcome: Outcome
        (outcome,) = await self.algorithm.process(message.business_id, [message])
        if outcome.status is Status.PROCESSED:
            await self.algorithm.table.barrier()
        for output in outcome.outputs:
            await self.publish(output)
        return outcome

    patch.setattr(state_based.StateBasedOneByOne, "process", process)


def _time_goes_back(patch: pytest.MonkeyPatch) -> None:
    begin: Any = Transaction.__init__

    def begin_without_time(self: Any, *given: Any, **named: Any) -> None:
        begin(self, *given, **named)
        self.last_now = 0

    patch.setattr(Transaction, "__init__", begin_without_time)


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
    Mistake("published before the append", publish_first, _ONE, _CALM, "NoGhost"),
    Mistake("only state changes are recorded", _record_only_changes, _COUNTED, _CALM, "NoGhost"),
    Mistake("appended without checking the ETag", _append_whatever_is_there, _BEGUN, _CALM, "NoLostUpdate"),
    Mistake(
        "a stream is begun without checking that there is none",
        _begin_whatever_is_there,
        _TWO,
        _CALM,
        "NoLostUpdate",
    ),
    Mistake(
        "after a lost race only the ETag is read again",
        _only_the_etag_is_read_again,
        _BEGUN,
        _CALM,
        "NoLostUpdate",
    ),
    Mistake("a conflict is taken for success", _a_conflict_is_the_end, _TWO, _CALM, "DoneWhenAcknowledged"),
    Mistake("a conflict is an error", _a_conflict_is_an_error, _TWO, _CALM, "NoError"),
    Mistake("a lost answer is taken for success", _no_answer_means_stored, _ONE, _LOSS, "NoGhost"),
    Mistake(
        "a stored message id is taken for one's own append",
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
    Mistake(
        "an error while publishing is ignored", _publishing_may_fail, _ONE, _LOSS, "DoneWhenAcknowledged"
    ),
    Mistake("nothing is made durable", _nothing_is_durable, _ONE, _POWER_CUT, "NoGhost"),
    Mistake(
        "what a duplicate finds is not made durable",
        _only_what_is_new_is_made_durable,
        _TWICE,
        _POWER_CUT,
        "NoGhost",
    ),
    Mistake("the recorded time goes back", _time_goes_back, _TWO, _CALM, "NoLostUpdate"),
)
