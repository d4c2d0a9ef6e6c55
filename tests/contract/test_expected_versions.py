from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from eventstore import (
    ConcurrencyConflictError,
    EventData,
    ExpectedVersion,
    InterceptedTable,
    Partition,
    Stream,
)
from eventstore.port import FIRST_SECONDS, LONGEST_BLOCKING_SECONDS, LONGEST_SECONDS
from eventstore.sync import BlockingStore
from eventstore.writing import ANY_ATTEMPTS

ANY, NO_STREAM, EMPTY, EXISTS = ExpectedVersion


def event(number: int) -> EventData:
    return EventData({"N": number})


def write(run, partition, expected):
    return run(Stream.write(partition, event(1), expected_version=expected))


@pytest.fixture
def no_stream(partition):
    return partition


@pytest.fixture
def empty(run, partition):
    run(Stream.provision(partition, {"Owner": "me"}))
    return partition


@pytest.fixture
def written(run, partition):
    run(Stream.write(partition, event(1), event(2), expected_version=0, properties={"Owner": "me"}))
    return partition


@pytest.mark.parametrize(
    ("place", "expected", "version"),
    [
        ("no_stream", NO_STREAM, 1),
        ("no_stream", 0, 1),
        ("no_stream", ANY, 1),
        ("empty", EMPTY, 1),
        ("empty", ANY, 1),
        ("empty", EXISTS, 1),
        ("written", 2, 3),
        ("written", ANY, 3),
        ("written", EXISTS, 3),
    ],
)
def test_a_stream_that_is_as_expected_is_written(run, store_url, request, place, expected, version):
    partition = request.getfixturevalue(place)

    result = write(run, partition, expected)

    assert [recorded.version for recorded in result.events] == [version]
    assert run(Stream.open(partition)) == result.stream


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ("no_stream", EMPTY),
        ("no_stream", EXISTS),
        ("no_stream", 2),
        ("empty", NO_STREAM),
        ("empty", 0),
        ("empty", 2),
        ("written", NO_STREAM),
        ("written", EMPTY),
        ("written", 1),
    ],
)
def test_a_stream_that_is_not_as_expected_is_a_conflict(run, request, refuses, place, expected):
    partition = request.getfixturevalue(place)

    with refuses(ConcurrencyConflictError):
        write(run, partition, expected)


@pytest.mark.parametrize("expected", ["1", 1.0, b"1"])
def test_an_expected_version_is_a_number_or_a_member_of_the_enumeration(run, written, refuses, expected):
    with refuses(TypeError, match="give a number or an ExpectedVersion"):
        write(run, written, expected)


def test_a_stream_that_is_expected_to_exist_is_not_waited_for(run, no_stream, pauses):
    with pytest.raises(ConcurrencyConflictError, match="does not exist, a stream was expected"):
        write(run, no_stream, EXISTS)

    assert pauses == []


def test_a_repeated_write_to_a_stream_that_exists_is_recognised(run, written):
    new = EventData({"N": 3}, id="three")

    first, again = [
        run(Stream.write(written, new, expected_version=EXISTS, idempotent=True)) for _ in range(2)
    ]

    assert (first.repeated, again.repeated, again.stream.version) == (False, True, 3)


def test_whatever_the_version_the_stream_keeps_its_properties(run, written):
    write(run, written, ANY)

    assert run(Stream.open(written)).properties == {"Owner": "me"}


@pytest.mark.parametrize("expected", [ANY, EXISTS])
def test_a_write_on_whatever_version_is_made_again_when_someone_else_was_faster(run, table, empty, expected):
    async def be_faster(name, _partition_key, _number):
        if name == "transact" and watched.counts["transact"] <= 3:
            await Stream.write(empty, EventData({"By": "other"}), expected_version=ANY)

    watched = InterceptedTable(table, before=be_faster)

    result = run(Stream.write(Partition(watched, empty.key), event(1), expected_version=expected))

    assert result.stream.version == 4
    assert watched.counts == {"get": 4, "transact": 4}


def test_writers_on_any_version_all_succeed(run, partition):
    async def write_together():
        await asyncio.gather(
            *[Stream.write(partition, event(number), expected_version=ANY) for number in range(12)]
        )

    run(write_together())

    found = run(Stream.read(partition))
    assert sorted(recorded.properties["N"] for recorded in found.events) == list(range(12))


def test_writers_on_any_version_pause_longer_and_longer(run, table, partition, pauses):
    async def be_faster(name, _partition_key, _number):
        if name == "transact":
            await Stream.write(partition, EventData({"By": "other"}), expected_version=ANY)

    watched = InterceptedTable(table, before=be_faster)

    with pytest.raises(ConcurrencyConflictError):
        run(Stream.write(Partition(watched, partition.key), event(1), expected_version=ANY))

    assert watched.counts == {"get": ANY_ATTEMPTS, "transact": ANY_ATTEMPTS}
    assert len(pauses) == ANY_ATTEMPTS - 1
    longest = LONGEST_SECONDS if table.scope == "network" else LONGEST_BLOCKING_SECONDS
    for failures, seconds in enumerate(pauses):
        most = min(longest, FIRST_SECONDS * 2**failures)
        assert most / 2 <= seconds <= most


@pytest.mark.parametrize("writers", [16, pytest.param(80, marks=pytest.mark.thorough)])
def test_many_writers_on_any_version_all_succeed_twice(store_url, table_name, writers):
    """Threads, so that writers to the SQLite file and in memory are in each other's way too."""

    def write_twice(number):
        for turn in (1, 2):
            new = EventData({"Writer": number, "Turn": turn})
            store.write(place, new, expected_version=ANY)

    with BlockingStore(store_url) as store, ThreadPoolExecutor(writers) as pool:
        place = Partition(store.table(table_name), "orders-7")
        for done in [pool.submit(write_twice, number) for number in range(writers)]:
            done.result()
        found = store.read(place)

    written = [(recorded.properties["Writer"], recorded.properties["Turn"]) for recorded in found.events]
    assert sorted(written) == [(number, turn) for number in range(writers) for turn in (1, 2)]
