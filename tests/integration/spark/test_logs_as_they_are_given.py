"""A log is a path, several, or a table; all that its folders hold is read, or it is said what is not."""

import gzip
import json

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from runtime.errors import LogError, UsageError
from runtime.spark.logs.normalise import normalise
from runtime.spark.logs.read import open_log
from tests.support.logs import fire, start, write_lines

pytestmark = pytest.mark.connect

ROWS = [start(1, 5), fire(2, 5)]
IDS = [row["message_id"] for row in ROWS]


def ids(spark, log, **options):
    """Return the ids of the messages of a log, and what is said of it."""
    said: list[str] = []
    rows = (
        normalise(open_log(spark, log, say=said.append, **options).rows)
        .select("message_id", "problem")
        .collect()
    )
    assert not [row["problem"] for row in rows if row["problem"]]
    return sorted(row["message_id"] for row in rows), said


def write(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        write_lines(path, rows)


@pytest.mark.thorough
@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
@pytest.mark.parametrize(
    "places", [("dt=2026-01-01/a", "dt=2026-01-02/b"), ("a", "2026/01/b"), ("a", "dt=2026-01-02/b")]
)
def test_folders_are_read_to_any_depth(spark, tmp_path, suffix, places):
    for row, place in zip(ROWS, places, strict=True):
        write(tmp_path / f"{place}.{suffix}", [row])

    assert ids(spark, tmp_path) == (IDS, [])


@pytest.mark.thorough
def test_names_of_folders_of_partitions_are_columns_of_a_parquet_log(spark, tmp_path):
    for row in ROWS:
        bare = {name: value for name, value in row.items() if name != "type"}
        write(tmp_path / f"type={row['type']}" / "a.parquet", [bare])

    assert ids(spark, tmp_path) == (IDS, [])


MARK = b"\xef\xbb\xbf"


@pytest.mark.thorough
@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_a_byte_order_mark_is_passed_over_at_the_beginning_of_a_file_only(spark, tmp_path, pack):
    lines = [json.dumps(row).encode() + b"\n" for row in ROWS]
    suffix = ".jsonl.gz" if pack is gzip.compress else ".jsonl"
    files = {
        "one": MARK + lines[0] + lines[1],
        "blank": MARK + b"\n" + lines[0],
        "later": lines[0] + MARK + lines[1],
        "twice": MARK + MARK + lines[0],
        "alone": MARK,
    }
    for name, content in files.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / f"log{suffix}").write_bytes(pack(content))

    rows = {name: normalise(open_log(spark, tmp_path / name).rows).collect() for name in files}

    problems = {name: [row["problem"] is not None for row in found] for name, found in rows.items()}
    assert problems == {
        "one": [False, False],
        "blank": [False],
        "later": [False, True],
        "twice": [True],
        "alone": [],
    }


def test_what_spark_passes_over_is_told_and_all_else_is_read(spark, tmp_path):
    write(tmp_path / "a.jsonl", ROWS[:1])
    write(tmp_path / "dt=2026-01-01" / "b.jsonl", ROWS[1:])
    write(tmp_path / "_c.jsonl", [start(9, 1)])
    (tmp_path / ".b.jsonl.crc").touch()

    said = ["Reading the log without 1 file or folder whose name begins with _ or . (_c.jsonl)"]
    assert ids(spark, tmp_path) == (IDS, said)


@pytest.mark.thorough
def test_several_paths_and_patterns(spark, tmp_path):
    write(tmp_path / "north" / "a.jsonl", ROWS[:1])
    write(tmp_path / "south" / "b.jsonl", ROWS[1:])

    assert ids(spark, [tmp_path / "north", str(tmp_path / "south" / "b.jsonl")]) == (IDS, [])
    assert ids(spark, f"{tmp_path}/*/*.jsonl") == (IDS, [])
    assert ids(spark, f"file:{tmp_path}") == (IDS, [])


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "format_", "sentence"),
    [
        ("log", None, "log is no Parquet. If it holds JSON lines, say --format json."),
        ("log.parquet", "json", "log.parquet is Parquet: leave out --format"),
    ],
)
def test_a_file_that_is_no_log(spark, tmp_path, name, format_, sentence):
    write(tmp_path / name, ROWS)

    with pytest.raises(LogError, match=sentence):
        open_log(spark, tmp_path / name, format_)


def test_a_file_system_that_spark_does_not_know(spark):
    with pytest.raises(LogError, match="package that brings the file system"):
        open_log(spark, "foo://x/y")


def test_tables_of_pandas_and_arrow(spark):
    frame = pd.DataFrame([{**row, "headers": None} for row in ROWS])
    frame.loc[0, "sequence"] = None  # which makes floats of the others

    for table in (frame, pa.Table.from_pandas(frame.drop(columns="sequence"))):
        assert ids(spark, table) == (IDS, [])


def test_bodies_that_are_structs_or_dicts(spark):
    bodies = [{"game_id": "g", "position": 5}, {"game_id": "g", "player": {"name": "Ä", "age": None}}]
    headers = [{"tenant": "a"}, None]
    columns = {"message_id": ["m1", "m2"], "type": ["A", "B"], "body": bodies, "headers": headers}
    frame = pd.DataFrame(columns)

    def read(log):
        rows = normalise(open_log(spark, log).rows).orderBy("message_id").collect()
        return [json.loads(row["body"]) for row in rows], [row["headers"] for row in rows]

    assert read(frame) == (bodies, headers)
    # In a struct a field that is missing is null, and so is left out.
    without = [bodies[0], {"game_id": "g", "player": {"name": "Ä"}}]
    assert read(pa.Table.from_pandas(frame)) == (without, headers)


@pytest.mark.parametrize("log", [7, [], ["a.jsonl", 7], {"message_id": ["m1"]}])
def test_what_is_no_log_at_all(spark, log):
    with pytest.raises(UsageError, match="A log is a path, a list of paths, a DataFrame"):
        open_log(spark, log)
