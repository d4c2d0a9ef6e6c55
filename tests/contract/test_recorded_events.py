"""What a recorded event has beside version and properties: its id, its time and its ETag."""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from eventstore import EventData, EventId, InterceptedTable, Partition, RecordedEvent, Stream

EVENTS = [EventData({"N": 1}, id="one"), EventData({"N": 2}), EventData({"N": 3}, id="three")]
IDS = [EventId("one"), None, EventId("three")]


@pytest.fixture
def written(run, partition):
    return run(Stream.write(partition, *EVENTS, expected_version=0))


READS: dict[str, Callable[..., Any]] = {
    "read": Stream.read,
    "read of one": lambda partition, **options: Stream.read(partition, 3, 1, **options),
    "read, selected": lambda partition, **options: Stream.read(partition, select=["N"], **options),
    "try_read": Stream.try_read,
    "read_backwards": Stream.read_backwards,
    "read_last": lambda partition, **options: Stream.read_last(partition, 2, **options),
}


@pytest.mark.parametrize("name", READS)
def test_ids_are_read_when_they_are_asked_for(run, partition, written, name):
    without = run(READS[name](partition)).events
    with_ids = run(READS[name](partition, ids=True)).events

    assert [event.id for event in without] == [None] * len(without)
    assert [event.id for event in with_ids] == [IDS[event.version - 1] for event in with_ids]
    assert without == with_ids


def test_ids_cost_one_request_more(run, table, partition, written):
    watched = InterceptedTable(table)

    run(Stream.read(Partition(watched, partition.key), ids=True))

    assert watched.counts == {"query": 2}


def test_ids_are_those_of_the_stream_alone(run, table):
    for key in ("orders-7", "orders-7|a", "orders-7|b"):
        new = EventData({"N": 1}, id=f"id of {key}")
        run(Stream.write(Partition(table, key), new, expected_version=0))

    for key in ("orders-7", "orders-7|a", "orders-7|b"):
        (event,) = run(Stream.read(Partition(table, key), ids=True)).events
        assert event.id == EventId(f"id of {key}")


def test_a_write_gives_ids_and_etags(run, partition, written, contents):
    etags = {row.row_key: row.etag for row in contents()}

    assert [event.id for event in written.events] == IDS
    assert [event.etag for event in written.events] == [etags[partition.event(n)] for n in (1, 2, 3)]
    assert [event.etag for event in run(Stream.read(partition)).events] == [e.etag for e in written.events]


def test_a_repeated_write_gives_ids_etags_and_times(run, partition):
    new = EventData({"N": 1}, id="one")
    first = run(Stream.write(partition, new, expected_version=0, idempotent=True))

    again = run(Stream.write(partition, new, expected_version=0, idempotent=True))

    assert again.repeated
    assert [(event.id, event.etag) for event in again.events] == [
        (event.id, event.etag) for event in first.events
    ]
    assert again.events[0].time is not None


async def collect(events):
    return [event async for event in events]


def test_every_read_gives_the_time_at_which_an_event_was_written(run, partition, written):
    stream = written.stream
    for number in (4, 5):
        stream = run(Stream.write(stream, EventData({"N": number}))).stream
    ways = [
        run(Stream.read(partition)).events,
        run(Stream.read(partition, 2, select=["N"])).events,
        run(collect(Stream.iterate(partition))),
        run(Stream.read_events(stream, 1, 5)),
    ]

    for events in ways:
        times = [event.time for event in events]
        assert all(before <= after for before, after in pairwise(times))
        for time in times:
            assert time.tzinfo is UTC
            assert abs(datetime.now(UTC) - time) < timedelta(hours=1)


def test_events_that_were_read_can_be_pickled_copied_hashed_and_written_as_json(run, partition, written):
    found = run(Stream.read(partition, ids=True)).events

    for made in (pickle.loads(pickle.dumps(found)), copy.deepcopy(found), tuple(map(copy.copy, found))):
        assert made == found
        assert [event.time for event in made] == [event.time for event in found]
        assert [event.id for event in made] == IDS
    assert len({*found, *written.events}) == 3
    as_dict = dataclasses.asdict(found[0])
    assert (as_dict["version"], as_dict["properties"], as_dict["id"]) == (1, {"N": 1}, {"value": "one"})
    assert json.loads(json.dumps([event.properties for event in found])) == [{"N": 1}, {"N": 2}, {"N": 3}]
    assert json.loads(json.dumps(as_dict, default=str))["time"] == str(found[0].time)


def test_events_are_equal_by_version_and_properties():
    now = datetime.now(UTC)

    assert RecordedEvent(1, {"N": 1}) == RecordedEvent(1, {"N": 1}, EventId("one"), now, "etag")
    assert RecordedEvent(1, {"N": 1}) != RecordedEvent(2, {"N": 1})
