"""Rows of a table: types, keys, ETags."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta, timezone
from enum import IntEnum, StrEnum
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eventstore import EventData, Int64, InvalidKeyError, Operation, RecordedEvent, Stream, Value

KEPT: dict[str, Value] = {
    "Text": "Grüße, 你好, 😀",
    "Empty": "",
    "Line": "first\nsecond\u2028third\x00",
    "Yes": True,
    "No": False,
    "Zero": 0,
    "Smallest": -(2**31),
    "Largest": 2**31 - 1,
    "Small64": Int64(1),
    "Smallest64": Int64(-(2**63)),
    "Largest64": Int64(2**63 - 1),
    "Whole": 1.0,
    "Tenth": 0.1,
    "Huge": 1.7976931348623157e308,
    "Tiny": 5e-324,
    "BigWhole": 1e21,
    "Infinite": math.inf,
    "NegativeInfinite": -math.inf,
    "When": datetime(2024, 2, 29, 12, 30, 45, 123456, tzinfo=UTC),
    "First": datetime(1601, 1, 1, tzinfo=UTC),
    "Last": datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    "Id": UUID("6f9619ff-8b86-d011-b42d-00cf4fc964ff"),
    "Bytes": bytes(range(256)),
    "NoBytes": b"",
    "LargeBytes": b"\x00\xff" * 400,
    "_underscored": 1,
    "Größe": 2,
}


def test_each_property_comes_back_as_it_was_written(run, table):
    run(table.transact("p", [Operation.insert("r", KEPT)]))

    read = run(table.get("p", "r")).properties

    assert read == KEPT
    assert {name: type(value) for name, value in read.items()} == {
        name: type(value) for name, value in KEPT.items()
    }


def test_not_a_number_comes_back(run, table):
    run(table.transact("p", [Operation.insert("r", {"N": math.nan})]))

    assert math.isnan(run(table.get("p", "r")).properties["N"])


def test_none_is_absent(run, table):
    properties: dict[str, Any] = {"A": None, "B": 1}
    run(table.transact("p", [Operation.insert("r", properties)]))

    assert run(table.get("p", "r")).properties == {"B": 1}


def test_a_time_in_another_zone_comes_back_in_utc(run, table):
    paris = timezone(timedelta(hours=1), "Paris")
    run(table.transact("p", [Operation.insert("r", {"When": datetime(2024, 1, 1, 12, tzinfo=paris)})]))

    read = run(table.get("p", "r")).properties["When"]

    assert read == datetime(2024, 1, 1, 11, tzinfo=UTC)
    assert read.tzinfo is UTC


class Size(IntEnum):
    LARGE = 3


class Colour(StrEnum):
    RED = "red"


def test_enumerations_come_back_as_plain_values(run, table):
    run(table.transact("p", [Operation.insert("r", {"Size": Size.LARGE, "Colour": Colour.RED})]))

    read = run(table.get("p", "r")).properties

    assert read == {"Size": 3, "Colour": "red"}
    assert [type(value) for value in (read["Size"], read["Colour"])] == [int, str]


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (2**31, ValueError),
        (-(2**31) - 1, ValueError),
        (Int64(2**63), ValueError),
        (datetime(2024, 1, 1), ValueError),  # noqa: DTZ001 - that is the point
        (datetime(1600, 12, 31, tzinfo=UTC), ValueError),
        (datetime(9999, 12, 31, 23, tzinfo=timezone(timedelta(hours=-2))), ValueError),
        ("half a character \ud800", ValueError),
        ([1], TypeError),
        ({}, TypeError),
        (1j, TypeError),
        (bytearray(b"x"), TypeError),
    ],
)
def test_a_value_that_no_table_holds_is_refused(run, table, contents, value, error):
    with pytest.raises(error, match="property 'Wrong'"):
        run(table.transact("p", [Operation.insert("ok", {}), Operation.insert("r", {"Wrong": value})]))

    assert contents("p") == ()


VALUES = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
    st.booleans(),
    st.integers(-(2**31), 2**31 - 1),
    st.integers(-(2**63), 2**63 - 1).map(Int64),
    st.floats(allow_nan=False),
    st.datetimes(datetime(1601, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001 - Hypothesis adds the zone
    st.uuids(),
    st.binary(max_size=700),
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(properties=st.dictionaries(st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{2,10}", fullmatch=True), VALUES))
def test_any_properties_come_back_equal_and_of_the_same_types(run, table, properties):
    run(table.transact("p", [Operation.insert_or_replace("r", properties)]))

    read = run(table.get("p", "r")).properties

    assert read == properties
    assert {name: type(value) for name, value in read.items()} == {
        name: type(value) for name, value in properties.items()
    }


PER_EXAMPLE = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30)
TRICKY = st.text(
    st.sampled_from("/\\#?%'~\x00\t\n\x7f\x85 \",;:&+=()[]{}|$!*@<>^`aZ0éß你\u2028\ufeff😀"),
    min_size=1,
    max_size=12,
)
KEYS = st.one_of(TEXT, TRICKY)


@PER_EXAMPLE
@given(partition_key=KEYS, row_key=KEYS)
def test_any_text_can_be_a_key(run, table, partition_key, row_key):
    (etag,) = run(table.transact(partition_key, [Operation.insert_or_replace(row_key, {"V": 1})]))
    (etag,) = run(table.transact(partition_key, [Operation.replace(row_key, {"V": 2}, etag)]))

    row = run(table.get(partition_key, row_key))
    assert (row.partition_key, row.row_key, row.etag, row.properties) == (
        partition_key,
        row_key,
        etag,
        {"V": 2},
    )
    assert run(table.query(partition_key, row_key, row_key)).rows == (row,)
    assert row in run(table.scan(row_key, partition_key, partition_key)).rows

    run(table.transact(partition_key, [Operation.delete(row_key, etag)]))
    assert run(table.get(partition_key, row_key)) is None


@PER_EXAMPLE
@given(row_keys=st.sets(KEYS, min_size=2, max_size=12))
def test_different_texts_are_different_keys(run, table, row_keys):
    run(table.transact("p", [Operation.insert(key, {"K": key}) for key in row_keys]))

    rows = run(table.query("p", "", "\uffff")).rows
    run(table.transact("p", [Operation.delete(key) for key in row_keys]))

    found = {row.row_key: row.properties["K"] for row in rows}
    assert found == {key: key for key in row_keys if key in found}
    # Beyond ASCII the services order keys each in their own way, and so end a range.
    assert {key for key in row_keys if key.isascii()} <= found.keys()


@pytest.mark.parametrize("key", ["", "half \ud83d", "x" * 513, "/" * 171, "😀" * 257])
def test_a_key_that_no_table_holds_is_refused(run, table, contents, key):
    with pytest.raises(InvalidKeyError):
        run(table.transact("orders-7", [Operation.insert("ok", {}), Operation.insert(key, {})]))
    with pytest.raises(InvalidKeyError):
        run(table.transact(key, [Operation.insert("ok", {})]))
    with pytest.raises(InvalidKeyError):
        run(table.get(key, "ok"))
    with pytest.raises(InvalidKeyError):
        run(table.get("ok", key))
    with pytest.raises(InvalidKeyError):
        run(table.query(key, "a", "b"))

    assert contents() == ()


@pytest.mark.parametrize("key", ["x" * 512, "/" * 170, "😀" * 256, "é" * 512])
def test_the_longest_keys_are_taken(run, table, key):
    run(table.transact(key, [Operation.insert(key, {"V": 1})]))

    assert run(table.get(key, key)).properties == {"V": 1}


def test_each_write_of_a_row_gives_it_a_new_etag(run, table):
    seen = []
    for number in range(30):
        seen += run(table.transact("p", [Operation.insert_or_replace("r", {"V": number % 2})]))

    assert len(set(seen)) == len(seen)
    assert run(table.get("p", "r")).etag == seen[-1]


def test_a_row_that_is_deleted_and_made_anew_gets_a_new_etag(run, table):
    seen = []
    for _ in range(20):
        seen += run(table.transact("p", [Operation.insert("r", {"V": 1})]))
        run(table.transact("p", [Operation.delete("r", seen[-1])]))

    assert len(set(seen)) == len(seen)


def test_reading_gives_the_etag_that_writing_gave(run, table):
    written = run(table.transact("p", [Operation.insert(key, {"V": 1}) for key in "abc"]))

    assert tuple(row.etag for row in run(table.query("p", "a", "c")).rows) == written
    assert tuple(row.etag for row in run(table.query("p", "a", "c", select=["V"])).rows) == written
    assert tuple(run(table.get("p", key)).etag for key in "abc") == written


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
