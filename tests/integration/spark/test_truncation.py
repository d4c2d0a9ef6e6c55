"""The truncation job: by the rules, over all streams of a table, and what a late message finds afterwards."""

import asyncio
from datetime import UTC, datetime

import pytest

from eventstore import connect
from runtime.archives.versions import files_that_name
from runtime.errors import ArchiveError
from runtime.ledger.ledger import Ledger
from runtime.spark import truncate, verify
from runtime.spark.truncation import TruncatedCount
from runtime.spark.worker.connection import open_table
from runtime.versions.stream import versions
from samples.shooting_range import app
from tests.support.clocks import FrozenClock
from tests.support.exported import exported
from tests.support.logs import GAME, fire, start, write_lines
from tests.support.outcomes import by_status, heads, published

pytestmark = pytest.mark.connect

DAY = 24 * 3600 * 1_000_000
JANUARY = FrozenClock.at("2026-01-10T00:00:00")
FEBRUARY = FrozenClock.at("2026-02-10T00:00:00")
MARCH = FrozenClock.at("2026-03-10T00:00:00")


def batches(place):
    """Run a batch in January and one in February, each with three messages; return their logs and outcomes."""
    made = []
    for month, clock in ((1, JANUARY), (2, FEBRUARY)):
        at = f"2026-0{month}-05T00:00:00Z"
        shots = [fire(10 * month + n, 5, enqueued_at=at) for n in (1, 2)]
        log = write_lines(place.folder / f"{month}.jsonl", [start(10 * month, 5, enqueued_at=at), *shots])
        made.append((log, place.run(log, clock=clock)))
    return made


def cut(place, **options):
    options = {"clock": MARCH, **options}
    return truncate(place.spark, store=place.store, table=place.table, **options)


def versions_cut(place, **options):
    return sum(count.versions for count in cut(place, **options).counts)


def test_old_versions_go_and_their_messages_are_too_late(any_place):
    place = any_place
    # Given a stream with a run of January and one of February
    (january, _), (february, outcomes) = batches(place)
    before = heads(place.store, place.table)

    # When it is truncated in March
    report = str(place.folder / "report")
    done = cut(place, older_than=30 * DAY, report=report)

    # Then the run of January is cut, and the newest state stays
    assert done.streams is not None
    ((_, versions, runs, rows, size, _, kept_from, newest, horizon, held),) = done.streams.collect()
    assert (versions, runs, kept_from, newest, held) == (3, 1, 4, 6, None)
    assert done.counts == [TruncatedCount("ShootingRange", "given", None, 1, 1, 3, 1, rows, size)]
    assert horizon == datetime(2026, 1, 5, tzinfo=UTC).replace(tzinfo=None)
    assert heads(place.store, place.table) == before

    # ... the ledger has forgotten the batch of January, and a dry run would not have made it do so
    connection = open_table(place.store, place.table)
    assert [record.number for record in connection.run(Ledger(connection.table, MARCH).batches(9))] == [2]

    # ... the messages of January are refused, and those of February are still replayed
    assert by_status(place.run(january, clock=MARCH)) == {("ShootingRange", "too_late"): 3}
    again = place.run(february, clock=MARCH)
    assert by_status(again) == {("ShootingRange", "duplicate"): 3}
    assert published(again) == published(outcomes)

    # ... unless they are processed on purpose
    assert by_status(place.run(january, clock=MARCH, late="process")) == {("ShootingRange", "processed"): 3}

    # ... and truncating once more cuts nothing
    assert versions_cut(place, older_than=30 * DAY) == 0


@pytest.mark.thorough
def test_what_is_cut_is_exported_first(place, tmp_path):
    batches(place)
    before = kept_versions(place)

    assert versions_cut(place, older_than=30 * DAY, export=str(tmp_path / "dry"), dry_run=True) == 3
    assert not (tmp_path / "dry").exists()
    folder = tmp_path / "export"
    assert versions_cut(place, older_than=30 * DAY, export=str(folder)) == 3

    assert len(before) == 6
    assert exported(folder, "ShootingRange", GAME) == before[:3]
    assert kept_versions(place) == before[3:]
    assert files_that_name(folder, "ShootingRange", [GAME]) == {next(folder.iterdir()): 3}


@pytest.mark.thorough
def test_the_whole_history_of_a_table_that_was_cut_is_verified_with_its_export(place, tmp_path):
    logs = [log for log, _ in batches(place)]
    truncate_options = {"older_than": 30 * DAY, "export": str(tmp_path / "export")}
    assert versions_cut(place, **truncate_options) == 3

    def verdicts(log, **options):
        where = {"store": place.store, "table": place.table, "partitions": 2}
        found = verify(place.spark, log, app, **where, **options)
        return {str(count.verdict) for count in found.counts}, found.deliveries

    assert verdicts(logs[0]) == ({"not_kept"}, 3)
    for log in logs:
        assert verdicts(log, export=truncate_options["export"]) == ({"match"}, 3)
    with pytest.raises(ArchiveError, match="There are no exported versions in"):
        verdicts(logs[0], export=str(tmp_path / "nothing"))


def kept_versions(place):
    async def read():
        async with connect(place.store) as store:
            return await versions(await store.table(place.table), "ShootingRange", GAME)

    return asyncio.run(read())
