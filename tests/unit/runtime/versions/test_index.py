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
from runtime.messages.envelope import id_key, id_keys
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
from tests.unit.runtime.colliding_ids import colliding_ids, ordinary_ids
from tests.unit.runtime.diary import DIARY, ponder, write
from tests.unit.runtime.indexes import index_of
from tests.unit.runtime.tables import memory_table
from tests.unit.runtime.worker import Worker, ends

# The index of message ids: whatever is in it is found, rows stay few, and prints are rarely written again.


KEY = bytes(range(16))
OTHER_KEY = bytes(range(1, 17))


def keys(first, count):
    return [each.to_bytes(16, "big") for each in range(first, first + count)]


def grown(sizes, *, kept_from=1):
    """Return an index that got a run of each size, one after the other, and how many hashes that wrote."""
    index: list[IndexRow] = []
    first, written = 1, 0
    for event, size in enumerate(sizes, 1):
        run = IndexRow.of(first, event, keys(first, size), KEY)
        index, changes = index_changes(index, [run], kept_from)
        written += sum(number(change.properties, "Count", 0) for change in changes)
        first += size
    return index, written


@given(st.lists(st.integers(1, 300), min_size=1, max_size=25), st.data())
def test_each_version_is_found_where_it_is(sizes, data):
    index, _ = grown(sizes)
    starts = list(accumulate(sizes, initial=1))
    total = sum(sizes)
    asked = data.draw(st.sets(st.integers(1, 2 * total), min_size=1, max_size=10))

    found = list(candidates(index, [n.to_bytes(16, "big") for n in asked]))

    assert len(found) == len(set(found))
    for each in asked:
        if each > total:
            continue
        event = max(place for place, start in enumerate(starts, 1) if start <= each and place <= len(sizes))
        assert (event, each - starts[event - 1]) in found


@pytest.mark.parametrize("others", [0, 100])
def test_a_hash_is_found_wherever_it_stands_and_never_across_two_others(others, monkeypatch):
    hashes = {b"asked": 0x01020102, b"low": 0x01020000, b"high": 0x00000102}
    monkeypatch.setattr(
        id_index,
        "id_hashes_of",
        lambda ids, _: pack(hashes.get(id_, len(id_) + 1000) for id_ in ids),
    )
    row = IndexRow.of(1, 1, [b"asked", b"low", b"high", b"asked", b"asked"], KEY)

    found = candidates([row], [b"asked", *[b"x" * length for length in range(others)]])

    assert sorted(place.position for place in found) == [0, 3, 4]


@pytest.mark.usefixtures("no_tail")
def test_ids_with_one_hash_are_told_apart_by_the_run(table, monkeypatch):
    monkeypatch.setattr(id_index, "id_hashes_of", lambda ids, _: bytes(4 * len(list(ids))))
    for line in "abc":
        Worker(table).process(write(line))

    assert ends(Worker(table).process(write("b"), write("d"))) == ["duplicate", "processed"]


@pytest.mark.usefixtures("no_tail")
def test_the_rows_of_a_stream_have_one_key_and_those_of_another_stream_another(table):
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
def test_rows_stay_few_and_prints_are_written_a_few_times(sizes):
    index, written = grown(sizes)

    total = sum(sizes)
    assert len(index) <= 2 + math.log2(total)
    assert written <= total * (5 if sizes[0] == 8192 else 2 + math.log2(total))
    assert [row.first for row in index] == [1, *[row.last + 1 for row in index[:-1]]]
    assert sizes[0] != 8192 or max(row.count for row in index) == limits.MAX_INDEX_HASHES


def test_rows_of_versions_that_were_cut_are_dropped():
    index, _ = grown([50_000, 50_000, 50_000])
    run = IndexRow.of(150_001, 4, keys(150_001, 10), KEY)

    after, changes = index_changes(index, [run], 100_001)

    assert [row.first for row in after] == [100_001, 150_001]
    deleted = [change.row_key for change in changes if change.verb is Verb.DELETE]
    assert deleted == [row.row_key for row in index[:2]]


@given(st.lists(st.integers(1, 300), min_size=1, max_size=12))
def test_a_row_comes_back(sizes):
    for row in grown(sizes)[0]:
        back = read_index_row(Row("p", row.row_key, "etag", row.properties()))
        assert back == replace(row, ends=unpack(pack(row.ends)))


@pytest.mark.parametrize(
    "change",
    [
        *({"Count": 3}, {"Hashes": None}, {"Hashes": b"123"}, {"Key": None}, {"Key": b""}),
        *({"Key": "text"}, {"First": "1"}, {"Ends": b""}),
    ],
)
def test_a_damaged_row_is_told(change):
    (row,) = grown([2])[0]
    properties = {**row.properties(), **change}
    properties = {name: value for name, value in properties.items() if value is not None}

    with pytest.raises(StoredDataError, match="index row"):
        read_index_row(Row("p", row.row_key, "etag", properties))


@pytest.mark.parametrize(
    ("key", "hashes"), [(KEY, "bd006ad09cedcd0315273f2b"), (OTHER_KEY, "8d1492d82b2698e4ca89b1d2")]
)
def test_hashes_never_change(key, hashes):
    """They are stored: another way to make them would make every message unknown."""
    ids = [bytes(16), id_key("0f0e0d0c-0b0a-0908-0706-050403020100"), "ä-1"]

    assert id_hashes_of(ids, key).hex() == hashes


# Searching hashes: however many are wanted, exactly those that are there are found, where they are.


# Bytes that repeat, so that hashes share some of their bytes, also across the border of two.
hashes = st.sampled_from([0, 1, 255, 256, 0x01010101, 0x010101FF, 2**32 - 1]) | (st.integers(0, 2**32 - 1))


@pytest.mark.parametrize("more", [0, 5, 600], ids=["few", "some", "many"])
@given(column=st.lists(hashes, max_size=60), wanted=st.frozensets(hashes, min_size=1, max_size=4))
def test_what_is_wanted_is_found_at_all_its_positions(column, wanted, more):
    asked = wanted.union(range(10_000, 10_000 + more))

    found = list(searching(asked)(pack(column)))

    assert sorted(found) == [position for position, hash_ in enumerate(column) if hash_ in asked]


# Ids that a sender made so that they have one hash cost no more than ordinary ones.


COLLIDING_KEY = bytes(range(16))
MANY = 8000
SOME = 1000
MAKERS = [ordinary_ids, colliding_ids]


class Work:
    """Counts the versions that a load looks at, and the runs that it reads for that."""

    def __init__(self, monkeypatch):
        self.looks = self.runs = 0
        read = stream._read_runs

        def counted(*arguments):
            for place in candidates(*arguments):
                self.looks += 1
                yield place

        def read_runs(stream, needed):
            self.runs += len(needed)
            return read(stream, needed)

        monkeypatch.setattr(id_index, "candidates", counted)
        monkeypatch.setattr(stream, "_read_runs", read_runs)

    @property
    def done(self):
        return self.looks, self.runs


def stored(ids, key):
    return [IndexRow.of(1, 1, id_keys(ids), key)]


@pytest.mark.parametrize("make", MAKERS)
def test_with_a_key_no_version_is_looked_at_in_vain(make):
    index = stored(make(0, MANY), COLLIDING_KEY)

    assert list(candidates(index, id_keys(make(MANY, MANY)))) == []
    assert len(list(candidates(index, id_keys(make(MANY - 7, MANY))))) == 7


def test_a_batch_over_them_does_what_one_over_others_does(monkeypatch):
    monkeypatch.setattr(id_index, "new_key", lambda: COLLIDING_KEY)
    done = {}
    for make in MAKERS:
        table, work = memory_table(), Work(monkeypatch)
        first, second = (list(map(ponder, make(start, SOME))) for start in (0, SOME))

        assert ends(Worker(table).process(*first)) == ["processed"] * SOME
        assert ends(Worker(table).process(*second)) == ["processed"] * SOME
        assert ends(Worker(table).process(*first[:3], *second[-3:])) == ["duplicate"] * 6
        done[make] = work.done

    (looks, runs), (usual_looks, usual_runs) = done[colliding_ids], done[ordinary_ids]
    assert looks <= 2 * usual_looks
    assert runs <= 2 * usual_runs
