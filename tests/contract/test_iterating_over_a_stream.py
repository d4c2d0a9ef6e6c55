from __future__ import annotations

import pytest

from eventstore import (
    EventData,
    InterceptedTable,
    Partition,
    Stream,
    StreamNotFoundError,
    StreamTruncatedError,
)


async def collect(events):
    return [event async for event in events]


@pytest.fixture
def long_stream(run, partition):
    """Give a stream with 2,500 events."""
    events = [EventData({"N": number}) for number in range(1, 2501)]
    return run(Stream.write_in_parts(partition, events, expected_version=0)).stream


def test_every_event_comes_once_in_order_one_request_for_a_thousand(run, table, long_stream):
    watched = InterceptedTable(table)

    events = run(collect(Stream.iterate(Partition(watched, "orders-7"))))

    assert [event.version for event in events] == list(range(1, 2501))
    assert [event.properties["N"] for event in events] == list(range(1, 2501))
    assert watched.counts == {"query": 3}


def test_it_can_begin_later(run, table, long_stream):
    watched = InterceptedTable(table)

    events = run(collect(Stream.iterate(Partition(watched, "orders-7"), 1400, select=["N"])))

    assert [event.version for event in events] == list(range(1400, 2501))
    assert watched.counts == {"query": 3}


def test_pages_are_read_when_they_are_asked_for(run, table, long_stream):
    async def first(number):
        events = Stream.iterate(Partition(watched, "orders-7"))
        return [(await anext(events)).version for _ in range(number)]

    watched = InterceptedTable(table)

    assert run(first(999))[-1] == 999
    assert watched.counts == {"query": 1}


def test_events_written_meanwhile_do_not_come(run, long_stream):
    async def write_meanwhile():
        versions = []
        async for event in Stream.iterate(long_stream.partition):
            versions.append(event.version)
            if event.version == 1:
                await Stream.write(long_stream, EventData({"N": 0}))
        return versions

    assert run(write_meanwhile())[-1] == 2500


@pytest.mark.parametrize("cut", [1100, 2400])
def test_events_cut_away_meanwhile_are_an_error_and_not_a_gap(run, long_stream, cut):
    async def truncate_meanwhile():
        async for event in Stream.iterate(long_stream.partition):
            versions.append(event.version)
            if event.version == 1:
                await Stream.truncate(long_stream, cut)

    versions: list[int] = []
    with pytest.raises(StreamTruncatedError):
        run(truncate_meanwhile())

    assert versions == list(range(1, 1000))


def test_a_truncated_stream_begins_where_it_was_cut(run, long_stream):
    run(Stream.truncate(long_stream, 2400))

    events = run(collect(Stream.iterate(long_stream.partition)))

    assert [event.version for event in events] == list(range(2400, 2501))


def test_an_empty_stream_has_none(run, partition):
    run(Stream.provision(partition))

    assert run(collect(Stream.iterate(partition))) == []
    assert run(collect(Stream.iterate(partition, 5))) == []


def test_a_stream_that_is_not_there_is_an_error(run, partition):
    with pytest.raises(StreamNotFoundError):
        run(collect(Stream.iterate(partition)))
