"""A table that was written before batches had numbers: its ledger is looked through once, and it is used as before."""

import sqlite3
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from eventstore import InterceptedTable, Operation, StoreUnavailableError, Table, connect, drive
from runtime.algorithms.state_based.truncation import truncate_stream
from runtime.algorithms.state_based.truncation_rules import TruncationRules
from runtime.batches.ledger import Ledger
from runtime.batches.numbering import PARTITION
from runtime.batches.open_batches import OpenBatches
from runtime.batches.record import BatchRecord
from runtime.errors import BatchRefusedError
from tests.unit.runtime.diary import write
from tests.unit.runtime.patience import PATIENCE
from tests.unit.runtime.worker import DAY, NOW, ToldClock, Worker, made_by

WRITTEN = Path(__file__).with_name("before_numbers.sql")
"""The table `diaries`, state-based: a run of `night-1` (a b c), and in the tail `night-2` (d), which was abandoned,
`night-3` (e), a single message (f), and `night-4` (g h), which died. The table `boxes`, outbox: `night-1` (a,
finished), `night-2` (b), which was abandoned, and `night-3` (c), which died. All ten days before `NOW`."""

OPENED = OpenBatches(1, frozenset(), frozenset({"night-4"}))


def opened(folder: Path, name: str) -> Table:
    file = folder / "old.db"
    if not file.exists():
        with sqlite3.connect(file) as connection:
            connection.executescript(WRITTEN.read_text())
        connection.close()
    return drive(connect(f"sqlite:///{file}").table(name, make=False))


@pytest.fixture
def diaries(tmp_path) -> Table:
    return opened(tmp_path, "diaries")


@pytest.fixture
def boxes(tmp_path) -> Table:
    return opened(tmp_path, "boxes")


def ledger_of(table: Table) -> Ledger:
    return Ledger(table, ToldClock(), PATIENCE)


def begin(table: Table, batch_id: str, algorithm: str = "state-based") -> BatchRecord:
    return drive(ledger_of(table).begin(batch_id, "a log", "/outcomes", algorithm))


def rows(table: Table) -> list[str]:
    page = drive(table.query(PARTITION, "!", "~"))
    return [row.row_key for row in page.rows]


def test_truncation_cuts_all_but_what_the_batch_that_died_has_written(diaries: Table):
    open_batches = drive(ledger_of(diaries).open_batches())
    Worker(diaries).process(write("newest"))

    rules = TruncationRules.of(NOW, open_batches, older_than=DAY)
    assert open_batches == OPENED

    # By default the single message stays too, as nobody says that its outputs are published
    drive(truncate_stream(diaries, "Diary-d-1", rules, PATIENCE))
    assert made_by(diaries) == ["f", "g", "h", "newest"]

    drive(truncate_stream(diaries, "Diary-d-1", replace(rules, acknowledged=NOW), PATIENCE))
    assert made_by(diaries) == ["g", "h", "newest"]


def test_a_dry_run_knows_the_same_and_writes_nothing(diaries: Table):
    before = rows(diaries)

    assert drive(ledger_of(diaries).open_batches(dry_run=True)) == OPENED
    drive(ledger_of(diaries).check_table("state-based"))
    assert [record.batch_id for record in drive(ledger_of(diaries).batches(3))] == [
        "night-4",
        "night-3",
        "night-2",
    ]
    assert rows(diaries) == before == ["night-1", "night-2", "night-3", "night-4"]


def test_the_ledger_is_looked_through_once(diaries: Table):
    counted = InterceptedTable(diaries)
    drive(ledger_of(counted).open_batches())
    looked = Counter(counted.counts)
    counted.counts.clear()

    assert drive(ledger_of(counted).open_batches()) == OPENED

    assert looked["transact"] == 2
    assert counted.counts == {"query": 1}
    assert [key.partition("-")[0] for key in rows(diaries)] == [
        "!next",
        "!open",
        *["!past"] * 3,
        *["night"] * 4,
    ]


def test_its_algorithm_and_its_batches_are_known_as_before(diaries: Table, boxes: Table):
    for table, algorithm, other in ((diaries, "state-based", "outbox"), (boxes, "outbox", "state-based")):
        for _ in ("before it is looked through", "afterwards"):
            drive(ledger_of(table).check_table(algorithm))
            with pytest.raises(
                BatchRefusedError, match=rf"algorithm {algorithm} \(batch night-1\), and cannot be"
            ):
                drive(ledger_of(table).check_table(other))
            drive(ledger_of(table).open_batches())
    assert [record.batch_id for record in drive(ledger_of(diaries).batches(9))] == [
        "night-4",
        "night-3",
        "night-2",
        "night-1",
    ]


@pytest.mark.parametrize("dies_after", range(1, 9))
def test_drivers_that_look_it_through_at_once_or_die_end_with_the_same(
    diaries: Table, dies_after: int, monkeypatch
):
    # Given transactions that make the marker of one batch, and a driver that dies after one of them
    monkeypatch.setattr("runtime.batches.numbering._AT_ONCE", 1)
    calls: list[str] = []

    def lose(name: str, *_: object) -> None:
        calls.append(name)
        if len(calls) == dies_after:
            raise StoreUnavailableError("killed", outcome_unknown=True)

    with pytest.raises(StoreUnavailableError):
        drive(ledger_of(InterceptedTable(diaries, after=lose)).open_batches())

    # When another goes on, and a third is faster in between
    interrupted: list[str] = []

    def overtake(name: str, *_: object):
        if name != "transact" or interrupted:
            return None
        interrupted.append(name)
        return ledger_of(diaries).open_batches()

    found = drive(ledger_of(InterceptedTable(diaries, before=overtake)).open_batches())

    # Then each batch has one marker
    assert found == drive(ledger_of(diaries).open_batches()) == OPENED
    assert len([key for key in rows(diaries) if key.startswith("!")]) == 5


def test_a_batch_that_an_older_driver_publishes_afterwards_is_closed_by_pruning(diaries: Table):
    drive(ledger_of(diaries).open_batches())
    drive(diaries.transact(PARTITION, [Operation.merge("night-4", {"Status": "published"})]))

    assert drive(ledger_of(diaries).prune(0)) == 0

    assert drive(ledger_of(diaries).open_batches()) == OpenBatches()
    assert drive(ledger_of(diaries).prune(NOW)) == 4


def test_a_batch_that_an_older_driver_begins_meanwhile_gets_its_marker_when_it_is_resumed(diaries: Table):
    row = drive(diaries.get(PARTITION, "night-4"))
    assert row is not None
    drive(ledger_of(diaries).open_batches())
    drive(diaries.transact(PARTITION, [Operation.insert("late", row.properties)]))

    record = begin(diaries, "late")

    assert drive(ledger_of(diaries).open_batches()).names == {"night-4", "late"}
    assert drive(ledger_of(diaries).publish(record)).is_finished
