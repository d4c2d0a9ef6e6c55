from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

import msgpack
import pytest

from eventstore import Int64, Value
from eventstore.backends.sqlite_file import (
    LARGE_BYTES,
    Packer,
    large_bytes,
    select_from,
    unpack,
    unpack_small,
)

SMALL: dict[str, Value] = {
    "Text": "é",
    "Number": 1,
    "Big": Int64(2),
    "When": datetime(2024, 1, 1, tzinfo=UTC),
    "Id": UUID(int=7),
    "Bytes": b"x" * LARGE_BYTES,
}
LARGE: dict[str, Value] = {"Long": b"l" * 3000, "Middle": b"m" * 2000, "Short": b"s" * (LARGE_BYTES + 1)}


def test_a_small_row_has_no_large_part():
    small, large = Packer().pack(SMALL)

    assert large is None
    assert unpack(small, large) == SMALL


def test_large_properties_stand_apart_the_shortest_first():
    small, large = Packer().pack({**SMALL, **LARGE})

    assert large == b"s" * (LARGE_BYTES + 1) + b"m" * 2000 + b"l" * 3000
    assert len(small) < 1000
    assert unpack(small, large) == {**SMALL, **LARGE}


@pytest.mark.parametrize(
    ("select", "needed"),
    [
        ([], 0),
        (["Text", "Missing"], 0),
        (["Short"], 513),
        (["Middle"], 2513),
        (["Long", "Text"], 5513),
        (["Long", "Short"], 5513),
    ],
)
def test_a_selection_needs_only_the_beginning_of_the_large_part(select, needed):
    row = {**SMALL, **LARGE}
    small, large = Packer().pack(row)
    assert large is not None
    properties, places = unpack_small(small)

    assert large_bytes(places, select) == needed
    assert select_from(properties, places, large[:needed], select) == {
        name: row[name] for name in select if name in row
    }


def test_a_large_part_that_is_cut_short_is_an_error():
    small, large = Packer().pack(LARGE)
    assert large is not None

    with pytest.raises(ValueError, match="cut short"):
        unpack(small, large[:-1])
    with pytest.raises(ValueError, match="cut short"):
        unpack(small, None)


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        b"\xc1",
        msgpack.packb({"A": msgpack.ExtType(99, b"x")}),
        msgpack.packb({"A": msgpack.ExtType(3, b"short")}),
        msgpack.packb({"A": msgpack.ExtType(2, b"x" * 17)}),
        msgpack.packb([1, 2, 3]),
        msgpack.packb({"A": b"x" * 65537}),
        msgpack.packb({1: 2}),
        msgpack.packb({"A": 1}) + b"more",
    ],
)
def test_damaged_bytes_are_an_error(damaged):
    with pytest.raises((ValueError, TypeError, msgpack.exceptions.UnpackException)):
        unpack(damaged, None)


def test_a_type_that_has_no_form_is_an_error():
    with pytest.raises(TypeError, match="complex"):
        Packer().pack({"A": 1j})  # type: ignore[dict-item]
