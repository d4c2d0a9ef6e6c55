from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from uuid import UUID

import pytest

from eventstore import EventData, Int64, RecordedEvent, Stream, Value

ALL_TYPES: dict[str, Value] = {
    "Text": "täxt\n😀",
    "Empty": "",
    "Flag": False,
    "Number": -7,
    "Big": Int64(2**40),
    "Real": 0.1,
    "At": datetime(2020, 1, 2, 3, 4, 5, 678901, tzinfo=UTC),
    "Guid": UUID(int=7),
    "Bytes": b"\x00\xff",
}


@pytest.mark.parametrize("asked", [{}, {"select": list(ALL_TYPES)}], ids=["all", "selected"])
def test_properties_come_back_with_their_types(run, partition, asked):
    run(Stream.write(partition, EventData(ALL_TYPES), expected_version=0))

    (event,) = run(Stream.read(partition, **asked)).events

    assert event == RecordedEvent(1, ALL_TYPES)
    assert {name: type(value) for name, value in event.properties.items()} == {
        name: type(value) for name, value in ALL_TYPES.items()
    }


def test_a_property_that_is_none_is_not_there(run, partition):
    run(Stream.write(partition, EventData({"A": 1, "B": None}), expected_version=0))

    assert run(Stream.read(partition)).events[0].properties == {"A": 1}


def test_an_event_needs_no_properties(run, partition):
    run(Stream.write(partition, EventData({}), expected_version=0))

    assert run(Stream.read(partition)).events == (RecordedEvent(1, {}),)


def test_each_event_has_its_own(run, partition):
    run(Stream.write(partition, EventData({"A": 1}), EventData({"B": "x"}), expected_version=0))

    assert [event.properties for event in run(Stream.read(partition)).events] == [{"A": 1}, {"B": "x"}]


def test_a_time_comes_back_in_utc(run, partition):
    east = timezone(timedelta(hours=2))
    run(Stream.write(partition, EventData({"At": datetime(2020, 1, 1, 1, tzinfo=east)}), expected_version=0))

    (event,) = run(Stream.read(partition)).events

    assert event.properties == {"At": datetime(2019, 12, 31, 23, tzinfo=UTC)}
    assert event.properties["At"].tzinfo is UTC


@pytest.mark.parametrize(
    ("value", "error"),
    [
        ([1], TypeError),
        (object(), TypeError),
        (2**31, ValueError),
        (Int64(2**63), ValueError),
        (datetime(2020, 1, 1), ValueError),  # noqa: DTZ001 - what is refused
        ("\ud800", ValueError),
    ],
    ids=["a list", "an object", "an int of 33 bits", "an Int64 of 65 bits", "no zone", "half a character"],
)
def test_what_no_table_holds_is_refused(run, partition, refuses, value, error):
    with refuses(error, match="'P'"):
        run(Stream.write(partition, EventData({"P": value}), expected_version=0))


def test_what_is_read_cannot_be_changed(run, partition):
    run(Stream.write(partition, EventData({"A": 1}), expected_version=0))
    (event,) = run(Stream.read(partition)).events

    with pytest.raises(TypeError):
        event.properties["A"] = 2
