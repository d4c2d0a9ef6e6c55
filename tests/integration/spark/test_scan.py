"""Counts and eviction on Spark, by ranges: the same numbers as in one process."""

import asyncio
from datetime import timedelta
from functools import partial

import pytest

from eventstore import KeyRange, Operation, connect
from runtime import Envelope, Processor
from runtime.batch_options import TablePlace
from runtime.errors import UsageError
from runtime.maintenance.check import Checked, check_table
from runtime.maintenance.statistics import TableCount, count_objects
from runtime.spark.outbox import evict
from runtime.spark.scan import scan
from samples.shooting_range import app
from tests.integration.spark.conftest import NIGHT
from tests.support.logs import fire, generated

pytestmark = pytest.mark.connect

GAMES = [f"00000000-0000-4000-8000-{number:012}" for number in range(10)]


def on(place, work):
    async def opened():
        async with connect(place.store) as store:
            return await work(await store.table(place.table))

    return asyncio.run(opened())


async def publish(_):
    """Publish nothing."""


def play(place, algorithm, ids=None):
    """Fire twice in each game, with an outbox."""

    async def played(table):
        async with connect((ids or place).store) as store:
            seen = await store.table(ids.table) if ids else None
            processor = Processor(
                app, table, publish, clock=NIGHT, algorithm=algorithm, deduplication_store=seen
            )
            for number, game in enumerate(GAMES):
                for row in (fire(2 * number, 5, game), fire(2 * number + 1, 6, game)):
                    await processor.process(Envelope.of(row["message_id"], row["type"], row["body"]))

    on(place, played)


def by_ranges(place, function, merge, prefix=""):
    scan(place.spark, at(place), function, merge, prefix=prefix)


@pytest.mark.thorough
@pytest.mark.parametrize("prefix", ["", "ShootingRange-", "Nobody-"])
def test_a_scan_counts_the_same_in_one_process_and_by_ranges(place, prefix):
    place.run(generated(place.folder / "log.jsonl", games=10, messages=60), cascade=True, clock=NIGHT)
    play(place, "outbox")
    alone = on(place, lambda table: count_objects(table, KeyRange(prefix)))

    found = TableCount()
    by_ranges(place, count_objects, found.merge, prefix)

    assert found.document() == alone.document()


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("algorithm", "is_elsewhere"),
    [("outbox", False), ("deduplication-store", False), ("deduplication-store", True)],
)
def test_as_much_is_forgotten_by_ranges_as_in_one_process(place, algorithm, is_elsewhere):
    if algorithm == "outbox":
        with pytest.raises(UsageError, match="omit it with outbox"):
            evict(place.spark, app, at(place), timedelta(), algorithm=algorithm, ids=at(place))
    # Given two stores in which the same was played
    other = place.beside("other")
    ids = [each.beside("ids") if is_elsewhere else None for each in (place, other)]
    for each, seen in zip((place, other), ids, strict=True):
        play(each, algorithm, seen)

    # When one forgets by ranges, and the other in one process
    def evicted(older_than, *, dry_run=False):
        return evict(
            place.spark, app, at(place), older_than,
            algorithm=algorithm, ids=ids[0] and at(ids[0]), dry_run=dry_run,
        )  # fmt: skip

    async def alone(table):
        async with connect((ids[1] or other).store) as store:
            seen = await store.table(ids[1].table) if ids[1] else None
            processor = Processor(app, table, publish, algorithm=algorithm, deduplication_store=seen)
            return await processor.evict(timedelta())

    # Then nothing goes that is too young, a dry run leaves all, and both forget the same
    assert evicted(timedelta(weeks=9999)) == 0
    assert evicted(timedelta(), dry_run=True) == 2 * len(GAMES)
    assert evicted(timedelta()) == on(other, alone) == 2 * len(GAMES)
    assert evicted(timedelta()) == 0
    assert on(place, count_objects).document() == on(other, count_objects).document()


def at(place):
    return TablePlace(place.store, place.table)


def test_a_damaged_table_is_checked_and_repaired_alike_in_one_process_and_by_ranges(place):
    # Given a table in which a truncation has left a row of one stream, and the tail of another is damaged
    place.run(generated(place.folder / "log.jsonl", games=4, messages=16), clock=NIGHT)

    async def damage(table):
        keys = sorted([row.partition_key for row in (await table.scan("SS-HEAD")).rows])
        await table.transact(keys[0], [Operation.insert("SS-SE-0000000000", {"Data": b"left"})])
        await table.transact(keys[-1], [Operation.merge("SS-HEAD", {"Tail": b"?"}, "*")])
        return keys[0], keys[-1]

    first, last = on(place, damage)

    def check_by_ranges(*, repair=False):
        checked = Checked()
        check = partial(check_table, repair=repair)
        by_ranges(place, check, lambda document: checked.update(Checked.of(document)))
        return checked

    # When it is checked in one process and by ranges, both find the same
    alone, found = on(place, check_table), check_by_ranges()
    assert (found.rows, found.streams) == (alone.rows, alone.streams)
    assert {fault.stream for fault in found.faults} == {first, last}
    assert sorted(found.faults, key=str) == sorted(alone.faults, key=str)

    # And what can be repaired is, on the workers
    repaired = check_by_ranges(repair=True)
    assert {fault.stream for fault in repaired.repaired} == {first}
    assert {fault.stream for fault in on(place, check_table).faults} == {last}
