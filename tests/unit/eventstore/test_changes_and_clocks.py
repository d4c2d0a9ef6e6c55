"""What a pass over changes makes of times: of changes between its pages, and of clocks that are set back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import count
from threading import RLock

import pytest

from eventstore import EventData, ExpectedVersion, InterceptedTable, Partition, Stream, changes, drive
from eventstore.backends import memory
from eventstore.backends.memory import MemoryTable

SECOND = timedelta(seconds=1)


class Clock:
    """Goes on by a second with each look at it."""

    def __init__(self) -> None:
        self.now = datetime(2020, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        self.now += SECOND
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def table(clock, monkeypatch):
    monkeypatch.setattr(memory, "PAGE_SIZE", 2)
    return MemoryTable(count(1), RLock(), clock)


def write(table, *keys):
    for key in keys:
        drive(Stream.write(Partition(table, key), EventData({}), expected_version=ExpectedVersion.ANY))


def follow(table, after=None, **options):
    async def collect():
        feed = changes(table, after, **options)
        return {change.stream.partition.key: change.stream.version async for change in feed}, feed.position

    return drive(collect())


@pytest.mark.parametrize("overlap", [timedelta(0), timedelta(minutes=1), timedelta(days=1)])
def test_a_change_behind_a_pass_that_goes_on_to_later_ones_is_not_missed(table, overlap):
    """Between two pages a stream of the first changes, and then one of the second: that is newer, and is given."""

    async def change(_name, _key, number):
        if number == 2:
            for key in ("a", "c"):
                await Stream.write(Partition(table, key), EventData({}), expected_version=ExpectedVersion.ANY)

    write(table, "a", "b", "c", "d")
    _, position = follow(table, overlap=overlap)

    found, position = follow(InterceptedTable(table, before=change), position, overlap=overlap)
    then, position = follow(table, position, overlap=overlap)
    last, _ = follow(table, position, overlap=overlap)

    assert found == {"c": 2}
    assert then["a"] == 2
    assert last == {}


def test_a_clock_that_is_set_back_by_less_than_the_overlap_hides_nothing(table, clock):
    write(table, "a", "b")
    _, position = follow(table)

    clock.now -= timedelta(seconds=50)
    write(table, "a")

    assert follow(table, position)[0] == {"a": 2}


def test_by_more_it_hides_a_change_until_the_stream_changes_again(table, clock):
    write(table, "a", "b")
    _, position = follow(table)

    clock.now -= timedelta(minutes=5)
    write(table, "a")
    hidden, position = follow(table, position)
    clock.now += timedelta(minutes=10)
    write(table, "a")

    assert (hidden, follow(table, position)[0]) == ({}, {"a": 3})


def test_rows_without_a_time_are_given_by_the_first_pass_alone():
    table = MemoryTable(count(1), RLock())
    write(table, "a", "b")

    first, position = follow(table)

    assert first == {"a": 1, "b": 1}
    assert follow(table, position)[0] == {}
