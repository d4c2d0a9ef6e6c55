"""Rows of a table: types of properties, keys, ETags, and the limits of all of them."""

import math
from datetime import UTC, datetime, timedelta, timezone
from enum import IntEnum, StrEnum
from functools import partial
from typing import Any
from uuid import UUID

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings

from eventstore import (
    EventData,
    Include,
    Int64,
    InvalidKeyError,
    Operation,
    PayloadTooLargeError,
    Stream,
    Value,
)
from tests.support.payloads import AT_A_LIMIT, KEYS, KIB, OVER_A_LIMIT, ROWS

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


def with_types(properties):
    return {name: (type(value), value) for name, value in properties.items()}


async def through_a_row(table, partition, properties):
    await table.transact("p", [Operation.insert_or_replace("r", properties)])
    return (await table.get("p", "r")).properties


async def through_an_event(table, partition, properties):
    await Stream.write(partition, EventData(properties), expected_version=0)
    (event,) = (await Stream.read(partition)).events
    return event.properties


async def through_a_selection(table, partition, properties):
    await Stream.write(partition, EventData(properties), expected_version=0)
    (event,) = (await Stream.read(partition, select=list(properties))).events
    return event.properties


@pytest.fixture(params=[through_a_row, through_an_event, through_a_selection])
def kept(request, run, table, partition):
    """Write properties, and return them as they are read."""
    return lambda properties: run(request.param(table, partition, properties))


class Size(IntEnum):
    LARGE = 3


class Colour(StrEnum):
    RED = "red"


PARIS = timezone(timedelta(hours=1), "Paris")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (KEPT, KEPT),
        ({}, {}),
        ({"A": None, "B": 1}, {"B": 1}),
        ({"When": datetime(2024, 1, 1, 12, tzinfo=PARIS)}, {"When": datetime(2024, 1, 1, 11, tzinfo=UTC)}),
        ({"Size": Size.LARGE, "Colour": Colour.RED}, {"Size": 3, "Colour": "red"}),
        ({"When": pd.Timestamp(KEPT["When"])}, {"When": KEPT["When"]}),  # type: ignore[arg-type]
    ],
    ids=["all types", "nothing", "None", "another zone", "enumerations", "of pandas"],
)
def test_each_property_comes_back_as_the_plain_value_that_was_written(kept, given, expected):
    read = kept(given)

    assert with_types(read) == with_types(expected)
    assert {value.tzinfo for value in read.values() if isinstance(value, datetime)} <= {UTC}


@pytest.mark.parametrize("number", [math.nan, type("Real", (float,), {})("nan")])
def test_not_a_number_comes_back(kept, number):
    assert math.isnan(kept({"N": number})["N"])


@pytest.mark.parametrize("make", [EventData, partial(Include.insert, "R")])
def test_a_value_that_is_more_than_what_would_be_stored_is_refused(make):
    with pytest.raises(ValueError, match="'A' is a Timestamp"):
        make({"A": pd.Timestamp("2024-01-01T12:00:00.123456789Z")})


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
        (object(), TypeError),
        (bytearray(b"x"), TypeError),
    ],
)
def test_a_value_that_no_table_holds_is_refused(run, table, partition, refuses, value, error):
    with refuses(error, match="property 'Wrong'"):
        run(table.transact("orders-7", [Operation.insert("ok", {}), Operation.insert("r", {"Wrong": value})]))
    with refuses(error, match="property 'Wrong'"):
        run(Stream.write(partition, EventData({"Wrong": value}), expected_version=0))


PER_EXAMPLE = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@PER_EXAMPLE
@given(properties=ROWS)
def test_any_properties_come_back_equal_and_of_the_same_types(run, table, properties):
    assert with_types(run(through_a_row(table, None, properties))) == with_types(properties)


@PER_EXAMPLE
@given(partition_key=KEYS, row_key=KEYS)
def test_any_text_can_be_a_key(run, table, partition_key, row_key):
    (etag,) = run(table.transact(partition_key, [Operation.insert_or_replace(row_key, {"V": 1})]))
    (etag,) = run(table.transact(partition_key, [Operation.replace(row_key, {"V": 2}, etag)]))

    row = run(table.get(partition_key, row_key))
    assert (row.partition_key, row.row_key, row.etag) == (partition_key, row_key, etag)
    assert row.properties == {"V": 2}
    assert run(table.query(partition_key, row_key, row_key)).rows == (row,)
    assert row in run(table.scan(row_key, partition_key, partition_key)).rows

    run(table.transact(partition_key, [Operation.delete(row_key, etag)]))
    assert run(table.get(partition_key, row_key)) is None


@pytest.mark.parametrize("key", ["", "half \ud83d", "x" * 513, "/" * 171, "😀" * 257])
def test_a_key_that_no_table_holds_is_refused(run, table, refuses, key):
    ok = Operation.insert("ok", {})
    for call in (
        table.transact("orders-7", [ok, Operation.insert(key, {})]),
        table.transact(key, [ok]),
        table.get(key, "ok"),
        table.get("ok", key),
        table.query(key, "a", "b"),
    ):
        with refuses(InvalidKeyError):
            run(call)
    with refuses(InvalidKeyError, match="512"):
        run(table.transact("p" * 513, [Operation.insert(key, {})]))  # the partition key is looked at first


@pytest.mark.parametrize("key", ["x" * 512, "/" * 170, "😀" * 256, "é" * 512])
def test_the_longest_keys_are_taken(run, table, key):
    run(table.transact(key, [Operation.insert(key, {"V": 1})]))

    assert run(table.get(key, key)).properties == {"V": 1}


def test_no_etag_of_a_row_ever_comes_again(run, table):
    seen = []
    for number in range(30):
        seen += run(table.transact("p", [Operation.insert_or_replace("r", {"V": number % 2})]))
    assert run(table.get("p", "r")).etag == seen[-1]
    for _ in range(20):
        run(table.transact("p", [Operation.delete("r", seen[-1])]))
        seen += run(table.transact("p", [Operation.insert("r", {"V": 1})]))

    assert len(set(seen)) == len(seen)


# Limits, which are checked before anything is sent.

REFUSALS = {
    "characters of a property name": ValueError,
    "characters of a key": InvalidKeyError,
    "characters of two units of a key": InvalidKeyError,
    "characters of an escaped key": InvalidKeyError,
}


@pytest.mark.parametrize("limit", AT_A_LIMIT)
def test_what_is_at_a_limit_is_taken(run, table, limit):
    run(table.transact("orders-7", AT_A_LIMIT[limit]))

    for operation in AT_A_LIMIT[limit]:
        assert run(table.get("orders-7", operation.row_key)).properties == operation.properties


@pytest.mark.parametrize("limit", OVER_A_LIMIT)
def test_what_is_over_a_limit_by_one_is_refused_also_after_others(run, table, refuses, limit):
    for others in ([], [Operation.insert("a", {})]):
        with refuses(REFUSALS.get(limit, PayloadTooLargeError)):
            run(table.transact("orders-7", [*others, *OVER_A_LIMIT[limit]]))


def wide_row(prefix, count, size) -> dict[str, Any]:
    return {f"{prefix}{number}": b"x" * size for number in range(count)}


@pytest.mark.parametrize("store_url", ["memory", "sqlite"], indirect=True)  # the emulator takes such rows
@pytest.mark.parametrize("wide", [(200, 1), (16, 63 * KIB)], ids=["too many properties", "too many bytes"])
def test_a_merge_cannot_make_a_row_too_large(run, table, refuses, wide):
    run(table.transact("orders-7", [Operation.insert("r", wide_row("P", *wide))]))

    with refuses(PayloadTooLargeError):
        merge = Operation.merge("r", wide_row("Q", *wide))
        run(table.transact("orders-7", [Operation.insert("a", {}), merge]))


@pytest.mark.parametrize(
    "name",
    ["", "with space", "with-hyphen", "9lives", "odata.etag", "a.b", "x" * 256, "PartitionKey", "RowKey",
     "Timestamp"],
)  # fmt: skip
def test_a_name_that_no_property_can_have_is_refused(run, table, refuses, name):
    with refuses(ValueError, match="property name"):
        run(table.transact("orders-7", [Operation.insert("r", {name: 1})]))
