"""The index of message ids: whatever is in it is found, rows stay few, and hashes are rarely rewritten."""

import math
from dataclasses import replace
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventstore import Verb
from eventstore.port import Row
from runtime.errors import StoredDataError
from runtime.messages.envelope import id_key
from runtime.versions import index as id_index
from runtime.versions import limits, stream
from runtime.versions.index import (
    IndexRow,
    candidates,
    id_hashes_of,
    index_changes,
    pack,
    read_index_row,
    searching,
    unpack,
)
from runtime.versions.properties import number
from tests.unit.runtime.diary import DIARY, ponder, write
from tests.unit.runtime.indexes import index_of
from tests.unit.runtime.worker import Worker, ends

KEY = bytes(range(16))
OTHER_KEY = bytes(range(1, 17))


def keys(first, count):
    return [each.to_bytes(16, "big") for each in range(first, first + count)]


def grown(sizes):
    """Return an index that got a run of each size, one after the other, and how many hashes that wrote."""
    index: list[IndexRow] = []
    first, written = 1, 0
    for event, size in enumerate(sizes, 1):
        index, changes = index_changes(index, [IndexRow.of(first, event, keys(first, size), KEY)], 1)
        written += sum(number(change.properties, "Count", 0) for change in changes)
        first += size
    return index, written


@given(st.lists(st.integers(1, 300), min_size=1, max_size=25), st.data())
def test_each_version_is_found_where_it_is_also_in_rows_that_were_stored(sizes, data):
    index, _ = grown(sizes)
    read = [read_index_row(Row("p", row.row_key, "etag", row.properties())) for row in index]
    assert read == [replace(row, ends=unpack(pack(row.ends))) for row in index]
    starts, total = list(accumulate(sizes, initial=1)), sum(sizes)
    asked = data.draw(st.sets(st.integers(1, 2 * total), min_size=1, max_size=10))

    found = list(candidates(read, [n.to_bytes(16, "big") for n in asked]))

    assert len(found) == len(set(found))
    for each in asked:
        if each <= total:
            event = max(place for place, start in enumerate(starts[:-1], 1) if start <= each)
            assert (event, each - starts[event - 1]) in found


@pytest.mark.usefixtures("no_tail")
def test_of_versions_with_one_hash_a_load_looks_at_each_once_and_the_run_tells_them_apart(table, monkeypatch):
    looked: list[object] = []
    read = stream._read_runs
    monkeypatch.setattr(id_index, "id_hashes_of", lambda ids, _: bytes(4 * len(list(ids))))

    def read_runs(history, needed):
        looked.append(needed)
        return read(history, needed)

    monkeypatch.setattr(stream, "_read_runs", read_runs)
    for line in "abc":
        Worker(table).process(write(line))
    looked.clear()

    assert ends(Worker(table).process(write("b"), write("d"), write("b"))) == [
        "duplicate",
        "processed",
        "duplicate",
    ]
    assert looked == [{1, 2, 3}]


@pytest.mark.usefixtures("no_tail")
def test_the_rows_of_a_stream_have_one_random_key_and_those_of_another_stream_another(table):
    for batch in range(5):
        Worker(table).process(*(ponder(f"{batch}-{each}") for each in range(5 - batch)))
    Worker(table, business_id="d-2").process(write("a", diary="d-2"))

    first, second = ({row.key for row in index_of(table, f"Diary-{diary}")} for diary in (DIARY, "d-2"))

    assert len(index_of(table)) > 1
    assert len(first) == len(second) == 1
    assert first != second


@pytest.mark.parametrize(
    "sizes", [[100] * 500, list(range(500, 1, -1)), [1, 400] * 250, [1] * 500, [8192] * 32]
)
def test_rows_stay_few_and_hashes_are_written_a_few_times(sizes):
    index, written = grown(sizes)

    total = sum(sizes)
    assert len(index) <= 2 + math.log2(total)
    assert written <= total * (5 if sizes[0] == 8192 else 2 + math.log2(total))
    assert [row.first for row in index] == [1, *[row.last + 1 for row in index[:-1]]]
    assert sizes[0] != 8192 or max(row.count for row in index) == limits.MAX_INDEX_HASHES


def test_rows_of_versions_that_were_cut_are_dropped():
    index, _ = grown([50_000, 50_000, 50_000])

    after, changes = index_changes(index, [IndexRow.of(150_001, 4, keys(150_001, 10), KEY)], 100_001)

    assert [row.first for row in after] == [100_001, 150_001]
    deleted = [change.row_key for change in changes if change.verb is Verb.DELETE]
    assert deleted == [row.row_key for row in index[:2]]


@pytest.mark.parametrize(
    "change",
    [
        *({"Count": 3}, {"Hashes": None}, {"Hashes": b"123"}, {"Key": None}, {"Key": b""}),
        *({"Key": "text"}, {"First": "1"}, {"Ends": b""}, {"Ends": "text"}),
    ],
)
def test_a_damaged_row_is_told(change):
    (row,) = grown([2])[0]
    changed = {**row.properties(), **change}
    properties = {name: value for name, value in changed.items() if value is not None}

    with pytest.raises(StoredDataError, match="index row"):
        read_index_row(Row("p", row.row_key, "etag", properties))


@pytest.mark.parametrize(
    ("key", "hashes"), [(KEY, "bd006ad09cedcd0315273f2b"), (OTHER_KEY, "8d1492d82b2698e4ca89b1d2")]
)
def test_hashes_never_change_as_others_would_make_every_message_unknown(key, hashes):
    ids = [bytes(16), id_key("0f0e0d0c-0b0a-0908-0706-050403020100"), "ä-1"]

    assert id_hashes_of(ids, key).hex() == hashes


# Bytes that repeat, so that hashes share some of their bytes, also across the border of two.
hashes = st.sampled_from([0, 1, 255, 256, 0x01010101, 0x010101FF, 2**32 - 1]) | (st.integers(0, 2**32 - 1))


@pytest.mark.parametrize("more", [0, 5, 600], ids=["few", "some", "many"])
@given(column=st.lists(hashes, max_size=60), wanted=st.frozensets(hashes, min_size=1, max_size=4))
def test_however_many_hashes_are_wanted_they_are_found_at_all_their_positions(column, wanted, more):
    asked = wanted.union(range(10_000, 10_000 + more))

    found = list(searching(asked)(pack(column)))

    assert sorted(found) == [position for position, hash_ in enumerate(column) if hash_ in asked]
