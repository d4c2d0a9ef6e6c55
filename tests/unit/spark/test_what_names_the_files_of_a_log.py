"""Files of a log on the disks of this machine are known by their bytes, and their messages counted, without Spark."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.spark.logs import read as reading
from runtime.spark.logs.read import Input, _digest, find_on_disk

LINE = b'{"message_id":"a","type":"FireAt","body":"{}"}\n'


def read(path: Path) -> Input | None:
    return _digest(find_on_disk([str(path)]))


def written(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def parquet(path: Path, rows: int = 10, **options) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"message_id": [f"message {row}" for row in range(rows)]}), path, **options)
    return path


def test_names_places_and_times_of_files_are_of_no_account(tmp_path):
    # Given a log, and its files again, in another folder under other names, which come in another order
    for name, copy, data in [("a", "z", LINE), ("b", "y", 2 * LINE), ("c/d", "x", 3 * LINE)]:
        written(tmp_path / "log" / f"{name}.jsonl", data)
        os.utime(written(tmp_path / "copied" / f"{copy}.jsonl", data), (0, 0))

    # Then they are the same
    assert read(tmp_path / "log") == read(tmp_path / "copied")


@pytest.mark.parametrize(
    "files",
    [
        {"a.jsonl": LINE, "b.jsonl": LINE.replace(b'"a"', b'"b"')},
        {"a.jsonl": LINE},
        {"a.jsonl": LINE, "b.jsonl": LINE, "c.jsonl": LINE},
        {"a.jsonl": LINE + LINE},
    ],
    ids=["a message changed", "one less", "one more", "split otherwise"],
)
def test_other_bytes_are_another_log(tmp_path, files):
    for name in ("a.jsonl", "b.jsonl"):
        written(tmp_path / "log" / name, LINE)
    for name, data in files.items():
        written(tmp_path / "other" / name, data)
    assert read(tmp_path / "log") != read(tmp_path / "other")


def test_folders_that_are_columns_count_and_others_do_not(tmp_path):
    def of(folder: str) -> Input | None:
        parquet(tmp_path / folder / "part-0.parquet")
        return read(tmp_path / folder.partition("/")[0])

    assert of("1/type=Start") == of("2/type=Start") != of("3/type=Fire")
    for place in ("lines/type=Start", "copied/type=Fire", "flat"):
        written(tmp_path / place / "part-0.jsonl", LINE)
    assert read(tmp_path / "lines") == read(tmp_path / "copied") == read(tmp_path / "flat")


@given(
    lines=st.lists(st.sampled_from([b"{}", b"x", b"", b" ", b"\t", b"\xff"])),
    ends=st.data(),
    chunk=st.integers(1, 5),
    mark=st.sampled_from([b"", b"\xef\xbb\xbf"]),
)
def test_lines_that_are_not_blank_are_counted_wherever_a_file_is_cut(
    tmp_path_factory, lines, ends, chunk, mark
):
    # Given lines that end in all ways, the last one perhaps in none, in a file that is read by a few bytes
    all_ends = [ends.draw(st.sampled_from([b"\n", b"\r\n", b"\r"])) for _ in lines]
    if all_ends and ends.draw(st.booleans()):
        all_ends[-1] = b""
    data = mark + b"".join(line + end for line, end in zip(lines, all_ends, strict=True))
    file = written(tmp_path_factory.mktemp("log") / "log.jsonl", data + b"\n{}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "_CHUNK", chunk)
        found = read(file)

    # Then none is counted twice or passed over
    last = lines[-1].strip(b" ") if lines else b""
    assert found is not None
    assert found.messages == sum(bool(line.strip(b" ")) for line in lines[:-1]) + bool(last) + 1


def test_rows_of_all_row_groups_are_counted(tmp_path):
    parquet(tmp_path / "log" / "a.parquet", rows=10_000, row_group_size=999)
    parquet(tmp_path / "log" / "b.parquet", rows=0)
    found = read(tmp_path / "log")
    assert found is not None
    assert found.messages == 10_000


def damaged_page(folder: Path) -> Path:
    file = parquet(folder / "log.parquet", write_page_checksum=True, compression="none", use_dictionary=False)
    return written(file, file.read_bytes().replace(b"message 7", b"message 8"))


def cut_short(folder: Path) -> Path:
    file = parquet(folder / "log.parquet")
    return written(file, file.read_bytes()[:-1])


def compressed(folder: Path) -> Path:
    return written(folder / "log.jsonl.gz", gzip.compress(LINE))


@pytest.mark.parametrize("make", [damaged_page, cut_short, compressed])
def test_what_is_damaged_or_compressed_is_left_to_spark(tmp_path, make):
    assert read(make(tmp_path)) is None


def test_a_log_that_is_too_much_for_one_process_is_left_to_spark(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "MOST_BYTES", 2 * len(LINE))
    written(tmp_path / "log" / "a.jsonl", 2 * LINE)
    assert read(tmp_path / "log") is not None
    written(tmp_path / "log" / "c.jsonl", LINE)
    assert read(tmp_path / "log") is None
