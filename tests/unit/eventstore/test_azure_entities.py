from __future__ import annotations

import json
from datetime import UTC, datetime
from uuid import UUID

from eventstore import Int64
from eventstore.backends.azure.entities import decode, encode


def entity(**properties):
    return {
        "odata.etag": 'W/"e"',
        "PartitionKey": "p",
        "RowKey": "r",
        "Timestamp": "2024-01-01T00:00:00Z",
        **properties,
    }


def test_a_row_is_encoded_with_the_types_that_json_lacks():
    text = encode(
        "p~2F",
        "r",
        {
            "A": "x",
            "B": 1,
            "C": True,
            "D": Int64(2),
            "E": 1.5,
            "F": datetime(2024, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
            "G": UUID(int=1),
            "H": b"\x00\xff",
            "I": float("inf"),
        },
    )

    assert json.loads(text) == {
        "PartitionKey": "p~2F",
        "RowKey": "r",
        "A": "x",
        "B": 1,
        "C": True,
        "D": "2",
        "D@odata.type": "Edm.Int64",
        "E": 1.5,
        "E@odata.type": "Edm.Double",
        "F": "2024-01-02T03:04:05.000006Z",
        "F@odata.type": "Edm.DateTime",
        "G": "00000000-0000-0000-0000-000000000001",
        "G@odata.type": "Edm.Guid",
        "H": "AP8=",
        "H@odata.type": "Edm.Binary",
        "I": "Infinity",
        "I@odata.type": "Edm.Double",
    }


def test_line_separators_are_escaped_and_other_text_is_not():
    text = encode("p", "r", {"A": "ß\u2028\u2029\n"})

    assert "ß" in text
    assert not {"\u2028", "\u2029", "\n"} & set(text)
    assert json.loads(text)["A"] == "ß\u2028\u2029\n"


def test_keys_are_unescaped():
    row = decode(entity(PartitionKey="a~2Fb", RowKey="~u2028"))

    assert (row.partition_key, row.row_key, row.etag) == ("a/b", "\u2028", 'W/"e"')


def test_system_properties_and_nulls_are_no_properties():
    assert decode({**entity(A=None, B=1), "odata.type": "x", "odata.id": "y"}).properties == {"B": 1}


def test_more_digits_of_a_second_than_python_has_are_cut():
    row = decode({**entity(A="2024-01-02T03:04:05.1234567Z"), "A@odata.type": "Edm.DateTime"})

    assert row.properties == {"A": datetime(2024, 1, 2, 3, 4, 5, 123456, tzinfo=UTC)}


def test_whole_seconds_are_understood():
    row = decode({**entity(A="2024-01-02T03:04:05Z"), "A@odata.type": "Edm.DateTime"})

    assert row.properties == {"A": datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC)}


def test_a_number_without_a_fraction_that_is_said_to_be_a_double_is_one():
    row = decode({**entity(A=1), "A@odata.type": "Edm.Double"})

    assert type(row.properties["A"]) is float


def test_an_etag_that_is_left_out_is_made_of_the_timestamp():
    without = entity(Timestamp="2024-01-02T03:04:05.1234567Z")
    del without["odata.etag"]

    assert decode(without).etag == "W/\"datetime'2024-01-02T03%3A04%3A05.1234567Z'\""
