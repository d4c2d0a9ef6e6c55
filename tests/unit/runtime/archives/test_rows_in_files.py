"""Rows stay what they are in Arrow, types included, and their digest tells all of them apart."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventstore import Int64, Row
from runtime.archives.tables import SCHEMA, ParquetFile, RowBuffer, SetDigest, packed_row, read_rows
from runtime.errors import ArchiveError

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
VALUES = st.one_of(
    TEXTS,
    st.booleans(),
    st.integers(-(2**31), 2**31 - 1),
    st.integers(-(2**63), 2**63 - 1).map(Int64),
    st.floats(allow_nan=False),
    st.datetimes(datetime(1601, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001 - the zone is given beside it
    st.uuids(),
    st.binary(),
)
ROWS = st.builds(
    Row, TEXTS, TEXTS, st.just(""), st.dictionaries(st.from_regex("[A-Z][a-z]{0,3}", fullmatch=True), VALUES)
)


@given(groups=st.lists(st.lists(ROWS, max_size=5), max_size=3))
def test_rows_come_back_with_the_types_of_their_properties(groups, tmp_path_factory):
    path = tmp_path_factory.mktemp("rows") / "rows.parquet"
    buffer = RowBuffer()
    with ParquetFile(path, SCHEMA) as file:
        for group in groups:
            for row in group:
                buffer.add(row)
            file.add(buffer.take())
        file.close()

    found = [row for rows in read_rows(path) for row in rows]

    assert found == [row for group in groups for row in group]
    assert list(map(packed_row, found)) == [packed_row(row) for group in groups for row in group]


def digest(*rows: Row) -> str:
    found = SetDigest()
    for row in rows:
        found.add(packed_row(row))
    return found.hexdigest()


def row(value, *, key: str = "r") -> Row:
    return Row("p", key, "", {"V": value})


def test_the_digest_tells_types_apart():
    values = [1, Int64(1), 1.0, True, "1", b"1", UUID(int=1), datetime.fromtimestamp(1, UTC)]

    assert len({digest(row(value)) for value in values}) == len(values)


def test_the_digest_is_that_of_a_set():
    first, second = row(1), row(2, key="s")

    assert digest(first, second) == digest(second, first)
    assert digest(first, second) != digest(first)
    assert digest(Row("p", "r", "1", {"A": 1, "B": 2})) == digest(Row("p", "r", "2", {"B": 2, "A": 1}))
    # What moves from one key to another is found.
    assert digest(row(1), row(2, key="s")) != digest(row(2), row(1, key="s"))


def test_a_bit_that_flips_anywhere_is_found_or_changes_nothing(tmp_path):
    path = tmp_path / "rows.parquet"
    rows = [row(number, key=f"r{number}") for number in range(3)]
    buffer = RowBuffer()
    for each in rows:
        buffer.add(each)
    with ParquetFile(path, SCHEMA) as file:
        file.add(buffer.take())
        file.close()
    whole, found = path.read_bytes(), 0

    for place in range(0, len(whole), 41):
        damaged = bytearray(whole)
        damaged[place] ^= 4
        path.write_bytes(damaged)
        try:
            read = [each for some in read_rows(path) for each in some]
        except ArchiveError:
            found += 1
        else:
            assert read == rows or digest(*read) != digest(*rows)

    assert found > 10


def test_a_property_without_a_value_is_damage(tmp_path):
    import pyarrow as pa

    path = tmp_path / "rows.parquet"
    rows = [{"partition_key": "p", "row_key": "r", "properties": [{"name": "V"}]}]
    with ParquetFile(path, SCHEMA) as file:
        file.add(pa.RecordBatch.from_pylist(rows, SCHEMA))
        file.close()

    with pytest.raises(
        ArchiveError, match=r"rows\.parquet of the export is damaged: the property V has no value"
    ):
        list(read_rows(path))
