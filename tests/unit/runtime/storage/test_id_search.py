"""Searching hashes: however many are wanted, exactly those that are there are found, where they are."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.versions.index import pack, searching, unpack

# Bytes that repeat, so that hashes share some of their bytes, also across the border of two.
hashes = st.sampled_from([0, 1, 255, 256, 0x01010101, 0x010101FF, 2**32 - 1]) | (st.integers(0, 2**32 - 1))


@pytest.mark.parametrize("more", [0, 5, 600], ids=["few", "some", "many"])
@given(column=st.lists(hashes, max_size=60), wanted=st.frozensets(hashes, min_size=1, max_size=4))
def test_what_is_wanted_is_found_at_all_its_positions(column, wanted, more):
    asked = wanted.union(range(10_000, 10_000 + more))

    found = list(searching(asked)(pack(column)))

    assert sorted(found) == [position for position, hash_ in enumerate(column) if hash_ in asked]


def test_packed_numbers_come_back():
    assert list(unpack(pack([0, 1, 2**32 - 1]))) == [0, 1, 2**32 - 1]
    assert pack([1, 256]) == b"\x01\x00\x00\x00\x00\x01\x00\x00"
