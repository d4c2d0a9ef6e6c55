"""Stored bytes that are not what was written: every public reader tells so by one error, which names the place.

A value of a real row is mutated, dropped, cut or given another type, also deep inside of what is packed and compressed,
and everything that reads the table is tried.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eventstore import Table, drive
from handlers import CodecError
from runtime import StoredDataError
from runtime.algorithms.state_based.replay import Verifier
from runtime.algorithms.state_based.truncation import TruncationChoices, take_old, truncate_stream
from runtime.dead_letters import Selection, discard, find_letters
from runtime.errors import BatchRefusedError, LeaseHeldError, ReplayFailedError, UsageError
from runtime.leases import CleanUpLease
from runtime.ledger.batch import OpenBatches
from runtime.ledger.ledger import Ledger
from runtime.maintenance.check import check_table
from runtime.maintenance.forget import Tables, find_trace
from runtime.maintenance.policies import Policies, PolicyReader
from runtime.maintenance.statistics import count_objects, count_rows
from runtime.messages.parsing import prepare
from runtime.tables.reader import Request, TableKind
from runtime.tables.streams import StreamQuery
from runtime.versions.stream import summaries, versions
from tests.unit.runtime import diary
from tests.unit.runtime.diary import write
from tests.unit.runtime.maintenance.damaged import (
    BATCH,
    KNOWN,
    STREAM,
    WITH_RUNS,
    damage,
    sound,
    table_of,
)
from tests.unit.runtime.maintenance.test_all_that_a_table_keeps import READERS as READERS_OF_KEPT
from tests.unit.runtime.maintenance.test_all_that_a_table_keeps import kept
from tests.unit.runtime.patience import PATIENCE
from tests.unit.runtime.worker import DAY, NOW, ToldClock, Worker

Read = Callable[[Table], Awaitable[object]]

HANDLER = diary.app.handlers["Diary"]
CLOCK = ToldClock()
RULES = TruncationChoices(older_than=2 * DAY, keep_last=1, allow_undated=True).as_of(NOW, OpenBatches())
SAID = (BatchRefusedError, LeaseHeldError, UsageError)
"""What is right to say of a row that was changed into another one that can be read."""


async def _all(found: AsyncIterator[object]) -> None:
    async for _ in found:
        pass


def _handle(business_id: str, ids: str) -> Read:
    async def handle(table: Table) -> object:
        messages = [write(each, diary=business_id) for each in ids]
        return await Worker(table, batch=BATCH, business_id=business_id).handle(*messages)

    return handle


def _verify(business_id: str, ids: str) -> Read:
    async def verify(table: Table) -> object:
        deliveries = [prepare(HANDLER, business_id, write(each, diary=business_id)) for each in ids]
        return await Verifier(table, HANDLER, PATIENCE).verify(business_id, deliveries)

    return verify


def _table(request: Request) -> Read:
    async def read(table: Table) -> None:
        await _all(request.batches(table))

    return read


READERS: dict[str, Read] = {
    "new messages": _handle("d-1", "xyz"),
    "known messages": _handle("d-1", "".join(KNOWN)),
    "known messages in runs": _handle("d-2", "abcdefg"),
    "new messages after runs": _handle("d-2", "xyz"),
    "verify": _verify("d-1", "abx"),
    "verify in runs": _verify("d-2", "abx"),
    "truncate": lambda table: truncate_stream(table, STREAM, RULES, PATIENCE),
    "truncate runs": lambda table: truncate_stream(table, WITH_RUNS, RULES, PATIENCE),
    "truncate runs and letters": lambda table: truncate_stream(
        table,
        STREAM,
        TruncationChoices(keep_last=1, give_up_letters_older_than=0).as_of(NOW, OpenBatches()),
        PATIENCE,
    ),
    "take versions": lambda table: take_old(table, WITH_RUNS, RULES, PATIENCE, lambda _version: None),
    "streams": lambda table: _all(summaries(table)),
    "show": lambda table: versions(table, "Diary", "d-1"),
    "show runs": lambda table: versions(table, "Diary", "d-2"),
    "stats": count_rows,
    "stats of objects": count_objects,
    "letters": lambda table: _all(find_letters(table, Selection())),
    "discard": lambda table: discard(table, Selection(), PATIENCE),
    "forget": lambda table: find_trace(Tables(table, table, table), "Diary", "d-1"),
    "batches": lambda table: Ledger(table, CLOCK, PATIENCE).batches(10),
    "begin a batch": lambda table: Ledger(table, CLOCK, PATIENCE).begin("b", "input", "/out"),
    "open batches": lambda table: Ledger(table, CLOCK, PATIENCE).open_batches(),
    "prune": lambda table: Ledger(table, CLOCK, PATIENCE).prune(NOW),
    "policies": lambda table: Policies(table, CLOCK, PATIENCE).all(),
    "decisions": lambda table: PolicyReader(table).decide([STREAM]),
    "lease": lambda table: CleanUpLease(table, CLOCK).find(),
    "check": check_table,
    "repair": lambda table: check_table(table, repair=True),
    **{f"table of {kind}": _table(Request(kind)) for kind in TableKind},
    "states as of a time": _table(Request(TableKind.STATE, as_of=NOW - DAY)),
    "states as of a batch": _table(Request(TableKind.STATE, batch_id="b")),
    "states as structs": _table(Request(TableKind.STATE, StreamQuery("Diary"), app=diary.app)),
    "versions as structs": _table(Request(TableKind.VERSIONS, StreamQuery("Diary"), app=diary.app)),
    "versions since a time": _table(Request(TableKind.VERSIONS, StreamQuery(since=NOW - DAY))),
    "change feed": _table(Request(TableKind.VERSIONS, change_feed=True, change_start="b")),
    "some columns": _table(Request(TableKind.VERSIONS, StreamQuery(columns=("batch", "message_id")))),
}


def _tell(read: Read, table: Table) -> StoredDataError | None:
    """Read a damaged table; every error is one that says so, or what is right to say of another row."""
    with suppress(CodecError, ReplayFailedError, *SAID):
        try:
            drive(read(table))  # type: ignore[arg-type] # coroutines
        except StoredDataError as error:
            return error
    return None


def _is_told(name: str, read: Read, table: Table) -> None:
    """Check that what is told names its place; a state that its model refuses may be in the header or in a run."""
    told = _tell(read, table)
    assert told is None or (told.stream and (told.row or name == "states as structs")), (name, told)


@pytest.mark.parametrize("reader", READERS)
def test_a_sound_table_is_read(reader):
    drive(READERS[reader](table_of(sound())))  # type: ignore[arg-type] # as above


@pytest.mark.parametrize(("found", "readers"), [(sound(), READERS), (kept(), READERS_OF_KEPT)])
@given(data=st.data())
@settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_damage_is_told_by_one_error_whoever_reads_it(found, readers, data):
    spoilt = data.draw(damage(found))

    for name, read in readers.items():
        _is_told(name, read, table_of(spoilt))
