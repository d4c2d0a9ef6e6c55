"""Rows stay what they are in files, types included, a digest tells them apart, and few are in memory at once."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventstore import Int64, Row, Table, drive
from runtime.archives import tables as importing
from runtime.archives.tables import (
    RowFiles,
    SetDigest,
    export_table,
    import_table,
    packed_row,
    read_batches,
    read_rows,
)
from runtime.errors import ArchiveError
from tests.unit.runtime.archives.tables import fill, ignore
from tests.unit.runtime.tables import memory_table

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


def write(folder: Path, rows: Sequence[Row]) -> Path:
    """Write rows to one file, and return its path."""
    files = RowFiles(folder)
    for each in rows:
        files.add(each)
    files.end_file()
    return folder / files.done[0].name


@given(rows=st.lists(ROWS, min_size=1, max_size=12))
def test_rows_come_back_with_the_types_of_their_properties(rows, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("runtime.archives.tables.GROUP_ROWS", 5)
        path = write(tmp_path_factory.mktemp("rows"), rows)

    found = [row for some in read_rows(path) for row in some]

    assert found == rows
    assert list(map(packed_row, found)) == list(map(packed_row, rows))


def digest(*rows: Row) -> str:
    found = SetDigest()
    for row in rows:
        found.add(packed_row(row))
    return found.hexdigest()


def row(value, *, key: str = "r") -> Row:
    return Row("p", key, "", {"V": value})


def test_the_digest_is_that_of_a_set_and_tells_types_and_keys_apart():
    values = [1, Int64(1), 1.0, True, "1", b"1", UUID(int=1), datetime.fromtimestamp(1, UTC)]
    first, second = row(1), row(2, key="s")

    assert len({digest(row(value)) for value in values}) == len(values)
    assert digest(first, second) == digest(second, first) != digest(first)
    assert digest(Row("p", "r", "1", {"A": 1, "B": 2})) == digest(Row("p", "r", "2", {"B": 2, "A": 1}))
    assert digest(first, second) != digest(row(2), row(1, key="s"))


def test_a_bit_that_flips_anywhere_is_found_or_changes_nothing(tmp_path):
    rows = [row(number, key=f"r{number}") for number in range(3)]
    path = write(tmp_path, rows)
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


def test_reading_a_file_holds_no_more_than_a_row_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(importing, "GROUP_ROWS", 16)
    groups, size = 30, 16 * 2 * 32_768
    rows = [Row("p", f"{n}", "", {"Data": n.to_bytes(2) * 32_768}) for n in range(16 * groups)]
    path = write(tmp_path, rows)
    before, most, count = pa.total_allocated_bytes(), 0, 0

    for read in read_batches(path):
        count += len(read)
        most = max(most, pa.total_allocated_bytes() - before)

    assert count == 16 * groups
    assert most < 5 * size  # the file is thirty times as large


def test_an_import_holds_no_more_rows_than_were_read_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(importing, "_READ_ROWS", 20)
    source = memory_table()
    drive(fill(source))
    manifest = drive(export_table(source, "games", tmp_path, ignore))
    written: list[int] = []
    write_some = importing._write

    async def counted(table: Table, waiting) -> None:
        written.append(sum(len(operations) for _, operations in waiting))
        await write_some(table, waiting)

    monkeypatch.setattr(importing, "_write", counted)
    drive(import_table(memory_table(), "other", tmp_path, manifest, ignore))

    assert (sum(written), max(written)) == (manifest.rows, 20)
