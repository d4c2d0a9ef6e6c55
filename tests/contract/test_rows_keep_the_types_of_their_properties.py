from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta, timezone
from enum import IntEnum, StrEnum
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eventstore import Int64, Operation, Value

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
