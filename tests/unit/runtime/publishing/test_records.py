"""What a table keeps of publications: one runner at a time sends a slice, and all goes with its batch or its object."""

from __future__ import annotations

from datetime import timedelta

import pytest

from eventstore import Table, drive
from runtime.clock import Clock, system_clock
from runtime.errors import LeaseLostError
from runtime.ledger.ledger import BatchRecord, Ledger
from runtime.maintenance.forget import Tables, find_trace, forget
from runtime.publishing.publisher import Record, Result
from runtime.publishing.records import (
    PARTITION,
    Publication,
    Publications,
    SliceClaim,
    SliceRecord,
    prune_publications,
)
from tests.unit.runtime.diary import DIARY, write
from tests.unit.runtime.patience import PATIENCE
from tests.unit.runtime.tables import rows
from tests.unit.runtime.worker import NOW, SECOND, ToldClock, Worker

LETTERS = [
    Record("m1", "Hit", DIARY, "Diary", Result.NOT_SENT, "400"),
    Record("m2", "Hit", DIARY, "AnotherHandler", Result.NOT_SENT, "400"),
    Record("m3", "Hit", "another", "Diary", Result.SENT),
]


def ended_batch(table: Table, batch_id: str) -> BatchRecord:
    ledger = Ledger(table, system_clock)
    return drive(ledger.publish(drive(ledger.begin(batch_id, "a log", "out"))))


def claimed(
    table: Table, batch_id: str, clock: Clock = system_clock, by: str = "ada"
) -> tuple[Publication, SliceClaim]:
    """Begin to publish a batch, or go on with it, and claim its only slice."""
    publications = Publications(table, clock)
    found = drive(publications.begin(f"{batch_id}-0123456789ab", "post:send", None, 1))
    claim = drive(publications.claim(found, 0, slice_of(table, found), by, timedelta(minutes=1)))
    assert claim is not None
    return found, claim


def slice_of(table: Table, publication: Publication) -> SliceRecord | None:
    return drive(Publications(table, system_clock).slices(publication)).get(0)


def kept(table: Table) -> list[str]:
    return sorted(row_key for partition, row_key in rows(table) if partition == PARTITION)


def refused(table: Table, publication: Publication) -> list[str]:
    return [each.message_id for each in drive(Publications(table, system_clock).records(publication))]


def test_publications_of_batches_that_were_pruned_are_deleted_with_their_dead_letters(table):
    ended_batch(table, "old")
    _, claim = claimed(table, "old")
    # More records than a transaction holds, and twice
    many = [Record(f"n{each:03}", "Hit", "g", "H", Result.SENT) for each in range(250)]
    for _ in range(2):
        drive(claim.note(1, [*LETTERS, *many]))
    assert refused(table, claim.publication) == [each.message_id for each in (*LETTERS, *many)]
    drive(Ledger(table, system_clock).prune(system_clock() + 1))

    ended_batch(table, "new-1")
    published, of_new = claimed(table, "new-1")
    drive(of_new.finish(1))

    # One of which a slice is being sent stays until it is not
    assert drive(prune_publications(table, system_clock)) == 0
    drive(claim.release())
    assert drive(prune_publications(table, system_clock)) == 1
    assert kept(table) == [f"p:{published.key}", f"s:{published.key}:000000"]
    assert drive(prune_publications(table, system_clock)) == 0


def test_an_object_that_is_forgotten_leaves_no_dead_letter_and_others_keep_theirs(table):
    Worker(table).process(write("canary", "m-1"))
    publication, claim = claimed(table, "b1")
    drive(claim.note(1, LETTERS))
    tables = Tables(table, table, table)

    trace = drive(find_trace(tables, "Diary", DIARY))
    assert trace is not None
    assert trace.rows["records of publications"] == 1
    drive(forget(tables, "Diary", DIARY, NOW, restart=False, retries=PATIENCE))

    assert refused(table, publication) == ["m2", "m3"]


def test_whoever_was_too_slow_finds_that_out_and_changes_nothing(table):
    clock = ToldClock()
    publication, slow = claimed(table, "b1", clock)
    drive(slow.note(5))
    clock.now += 90 * SECOND
    _, quick = claimed(table, "b1", clock, "grace")

    with pytest.raises(LeaseLostError, match="taken over by grace"):
        drive(slow.note(9))
    drive(slow.release())

    found = slice_of(table, publication)
    assert found is not None
    assert (quick.position, found.position, found.lease.holder) == (5, 5, "grace")


def test_of_two_who_claim_a_slice_one_has_it(table):
    publication, _ = claimed(table, "b1")

    claim = Publications(table, system_clock).claim(publication, 0, None, "grace", timedelta(minutes=1))

    assert drive(claim) is None
