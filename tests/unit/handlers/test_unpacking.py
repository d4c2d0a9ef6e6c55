"""Unpacking msgpack of others: bombs are refused before they take memory, and what is sound comes back."""

import struct
import tracemalloc

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from handlers import codec as unpacking
from handlers.codec import MAX_DEPTH, MAX_ITEMS, unpack

MIB = 2**20
REFUSALS = (ValueError, TypeError, msgpack.UnpackException)


def array(items: int) -> bytes:
    return b"\xdd" + struct.pack(">I", items)


def mapping(items: int) -> bytes:
    return b"\xdf" + struct.pack(">I", items)


BOMBS = {
    "empty arrays": array(8 * MIB) + b"\x90" * (8 * MIB),
    "empty maps": array(8 * MIB) + b"\x80" * (8 * MIB),
    "arrays of empty arrays": array(5000) + (b"\xdc\x00\xff" + b"\x90" * 255) * 5000,
    "arrays that announce more than they have": array(2 * MIB) * 1000 + bytes(4 * MIB),
    "maps that announce more than they have": mapping(2 * MIB) + bytes(4 * MIB),
    "numbers": array(8 * MIB) + bytes(8 * MIB),
    "small arrays that announce much": array(60_000) * 1000 + bytes(60_000),
    "depth": b"\x91" * 1000 + b"\xc0",
    "maps inside of maps": b"\x81\xa1a" * (MAX_DEPTH + 2) + b"\xc0",
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_and_takes_little_memory(name, monkeypatch):
    monkeypatch.setattr(unpacking, "MAX_ITEMS", 2**17)  # to trace a million takes seconds
    tracemalloc.start()
    try:
        with pytest.raises(REFUSALS):
            unpack(BOMBS[name], strict_map_key=False)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert most < 40 * MIB


@pytest.mark.parametrize("depth", [1, MAX_DEPTH - 1, MAX_DEPTH])
def test_what_is_as_deep_and_has_as_many_items_as_allowed_comes_back(depth):
    value: object = None
    for _ in range(depth):
        value = [value, {}]

    assert unpack(msgpack.packb(value)) == value
    assert len(unpack(msgpack.packb([None] * (MAX_ITEMS - 1)))) == MAX_ITEMS - 1


@given(st.binary(max_size=300))
def test_any_bytes_are_unpacked_or_refused(data):
    try:
        found = unpack(data, strict_map_key=False)
    except REFUSALS:
        return
    assert found == msgpack.unpackb(data, strict_map_key=False) or found != found  # noqa: PLR0124 - not a number
