"""What is kept of publications goes with their batches, and a dead letter with the object that it names."""

from __future__ import annotations

from datetime import timedelta

import pytest

from eventstore import Table, drive
from runtime.clock import system_clock
from runtime.ledger.ledger import BatchRecord, Ledger
from runtime.maintenance.forget import Tables, forget, look
from runtime.publishing.publisher import Record, Result
from runtime.publishing.records import PARTITION, Claim, Publication, Publications, prune_publications
from tests.unit.runtime.diary import DIARY, write
from tests.unit.runtime.patience import PATIENCE
from tests.unit.runtime.tables import memory_table, rows
from tests.unit.runtime.worker import NOW, Worker

LETTERS = [
    Record("m1", "Hit", DIARY, "Diary", Result.NOT_SENT, "400"),
    Record("m2", "Hit", DIARY, "AnotherHandler", Result.NOT_SENT, "400"),
    Record("m3", "Hit", "another", "Diary", Result.SENT),
]


@pytest.fixture
def table() -> Table:
    return memory_table()


def ended_batch(table: Table, batch_id: str) -> BatchRecord:
    ledger = Ledger(table, system_clock)
    return drive(ledger.publish(drive(ledger.begin(batch_id, "a log", "out"))))


def claimed(table: Table, batch_id: str) -> tuple[Publication, Claim]:
    """Begin to publish a batch, and claim its only slice."""
    publications = Publications(table, system_clock)
    found = drive(publications.begin(f"{batch_id}-0123456789ab", "post:send", None, 1))
    claim = drive(publications.claim(found, 0, None, "me", timedelta(minutes=1)))
    assert claim is not None
    return found, claim


def kept(table: Table) -> list[str]:
    return sorted(row_key for partition, row_key in rows(table) if partition == PARTITION)


def refused(table: Table, publication: Publication) -> list[str]:
    return [each.message_id for each in drive(Publications(table, system_clock).records(publication))]


def test_publications_of_batches_that_were_pruned_are_deleted_with_their_dead_letters(table):
    ended_batch(table, "old")
    _, claim = claimed(table, "old")
    drive(claim.note(1, LETTERS))
    drive(claim.finish(1))
    assert len(kept(table)) == 5
    drive(Ledger(table, system_clock).prune(system_clock() + 1))

    ended_batch(table, "new-1")
    published, claim = claimed(table, "new-1")
    drive(claim.finish(1))

    assert drive(prune_publications(table, system_clock)) == 1
    assert kept(table) == [f"p:{published.key}", f"s:{published.key}:000000"]
    assert drive(prune_publications(table, system_clock)) == 0


def test_one_of_which_a_slice_is_being_sent_stays_until_it_is_not(table):
    ended_batch(table, "old")
    _, claim = claimed(table, "old")
    drive(Ledger(table, system_clock).prune(system_clock() + 1))

    assert drive(prune_publications(table, system_clock)) == 0
    drive(claim.release())
    assert drive(prune_publications(table, system_clock)) == 1
    assert kept(table) == []


def test_many_dead_letters_are_deleted_in_several_transactions(table):
    ended_batch(table, "old")
    _, claim = claimed(table, "old")
    drive(claim.note(1, [Record(f"m{each}", "Hit", "g", "H", Result.SENT) for each in range(150)]))
    drive(claim.finish(1))
    drive(Ledger(table, system_clock).prune(system_clock() + 1))

    assert drive(prune_publications(table, system_clock)) == 1
    assert kept(table) == []


def test_an_object_that_is_forgotten_leaves_no_dead_letter_and_others_keep_theirs(table):
    Worker(table).process(write("canary", "m-1"))
    publication, claim = claimed(table, "b1")
    drive(claim.note(1, LETTERS))
    tables = Tables(table, table, table)

    trace = drive(look(tables, "Diary", DIARY))
    assert trace is not None
    assert trace.rows["records of publications"] == 1
    drive(forget(tables, "Diary", DIARY, NOW, restart=False, retries=PATIENCE))

    assert refused(table, publication) == ["m2", "m3"]
