"""Logs as they are given: paths, tables, files of any depth; what names a log, and what is none."""

import gzip
import json
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from uuid import UUID

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.types import StructType

from runtime.cli.checks import check_log, check_source_folder
from runtime.errors import LogError, UsageError
from runtime.spark import run_stream, verify
from runtime.spark.logs.normalise import normalise
from runtime.spark.logs.read import Input, _schema_of, describe_input, find_on_disk, open_log, write_log
from runtime.spark.streaming.query import SourceFormat, open_source
from tests.support.logs import fire, start, write_lines
from tests.support.outcomes import by_status

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


@pytest.mark.connect
@pytest.mark.thorough
@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
@pytest.mark.parametrize(
    "places", [("dt=2026-01-01/a", "dt=2026-01-02/b"), ("a", "2026/01/b"), ("a", "dt=2026-01-02/b")]
)
def test_folders_are_read_to_any_depth(spark, tmp_path, suffix, places):
    for row, place in zip(ROWS, places, strict=True):
        write(tmp_path / f"{place}.{suffix}", [row])

    assert ids(spark, tmp_path) == (IDS, [])


@pytest.mark.connect
@pytest.mark.thorough
def test_names_of_folders_of_partitions_are_columns_of_a_parquet_log(spark, tmp_path):
    for row in ROWS:
        bare = {name: value for name, value in row.items() if name != "type"}
        write(tmp_path / f"type={row['type']}" / "a.parquet", [bare])

    assert ids(spark, tmp_path) == (IDS, [])


MARK = b"\xef\xbb\xbf"


@pytest.mark.connect
@pytest.mark.thorough
@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_a_byte_order_mark_is_passed_over_at_the_beginning_of_a_file_only(spark, tmp_path, pack):
    lines = [json.dumps(row).encode() + b"\n" for row in ROWS]
    suffix = ".jsonl.gz" if pack is gzip.compress else ".jsonl"
    files = {
        "one": MARK + lines[0] + lines[1],
        "blank": MARK + b"\n \t\n\t\n" + lines[0],
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


@pytest.mark.connect
def test_what_spark_passes_over_is_told_and_all_else_is_read(spark, tmp_path):
    write(tmp_path / "a.jsonl", ROWS[:1])
    write(tmp_path / "dt=2026-01-01" / "b.jsonl", ROWS[1:])
    write(tmp_path / "_c.jsonl", [start(9, 1)])
    (tmp_path / ".b.jsonl.crc").touch()

    said = ["Reading the log without 1 file or folder whose name begins with _ or . (_c.jsonl)"]
    assert ids(spark, tmp_path) == (IDS, said)


@pytest.mark.connect
@pytest.mark.thorough
def test_several_paths_and_patterns(spark, tmp_path):
    write(tmp_path / "north" / "a.jsonl", ROWS[:1])
    write(tmp_path / "south" / "b.jsonl", ROWS[1:])

    assert ids(spark, [tmp_path / "north", str(tmp_path / "south" / "b.jsonl")]) == (IDS, [])
    assert ids(spark, f"{tmp_path}/*/*.jsonl") == (IDS, [])
    assert ids(spark, f"file:{tmp_path}") == (IDS, [])


@pytest.mark.connect
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


@pytest.mark.connect
def test_a_file_system_that_spark_does_not_know(spark):
    with pytest.raises(LogError, match="package that brings the file system"):
        open_log(spark, "foo://x/y")


@pytest.mark.connect
def test_tables_of_pandas_and_arrow(spark):
    frame = pd.DataFrame([{**row, "headers": None} for row in ROWS])
    frame.loc[0, "sequence"] = None  # which makes floats of the others

    for table in (frame, pa.Table.from_pandas(frame.drop(columns="sequence"))):
        assert ids(spark, table) == (IDS, [])


@pytest.mark.connect
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


@pytest.mark.connect
@pytest.mark.parametrize("log", [7, [], ["a.jsonl", 7], {"message_id": ["m1"]}])
def test_what_is_no_log_at_all(spark, log):
    with pytest.raises(UsageError, match="A log is a path, a list of paths, a DataFrame"):
        open_log(spark, log)


def test_a_path_that_does_not_exist(place):
    with pytest.raises(LogError, match=r"There is no log at .*nowhere\.jsonl"):
        place.run(str(place.folder / "nowhere.jsonl"))


def test_a_folder_without_a_log(place):
    (place.folder / "empty").mkdir()
    with pytest.raises(LogError, match="holds no parquet files"):
        place.run(str(place.folder / "empty"))


def test_an_empty_log(place):
    with pytest.raises(LogError, match="holds no messages"):
        place.run(write_lines(place.folder / "log.jsonl", []))


@pytest.mark.parametrize("missing", ["message_id", "type", "body"])
def test_a_required_column_is_missing(place, missing):
    columns = [name for name in ("message_id", "type", "body") if name != missing]
    log = place.spark.createDataFrame([("a", "b")], columns)
    with pytest.raises(LogError, match=f"lacks the column {missing}"):
        place.run(log)


@pytest.mark.parametrize(
    "column", ["sequence double", "enqueued_at bigint", "headers array<string>", "business_id int"]
)
def test_a_column_of_another_type(place, column):
    log = place.spark.createDataFrame(
        [("a", "b", "c", None)], f"message_id string, type string, body string, {column}"
    )
    with pytest.raises(LogError, match=f"The column {column.split()[0]} of the log is of type"):
        place.run(log)


def test_a_store_in_memory_is_refused(place):
    place.store = "memory:"
    with pytest.raises(UsageError, match="seen by one process only"):
        place.run(write_lines(place.folder / "log.jsonl", [start(1, 1)]))


@pytest.mark.thorough
def test_logs_with_and_without_the_optional_columns_give_the_same(place):
    # Given a log with all columns, in Parquet and in JSON lines, and one with the required columns only
    rows = [
        {
            **start(1, 5),
            "enqueued_at": "2026-01-01T00:00:00Z",
            "headers": {"tenant": "a"},
            "business_id": None,
        },
        {**fire(2, 5), "enqueued_at": "2026-01-01T00:00:01.5+00:00", "headers": None, "business_id": None},
    ]
    lines = write_lines(place.folder / "log.jsonl", rows)
    schema = (
        "message_id string, type string, body string, business_id string, sequence bigint, enqueued_at timestamp, "
        "headers map<string,string>"
    )
    place.spark.read.schema(schema).json(lines).write.parquet(str(place.folder / "log.parquet"))
    place.spark.read.parquet(str(place.folder / "log.parquet")).select(
        "message_id", "type", "body"
    ).write.parquet(str(place.folder / "bare.parquet"))

    # When the first runs, and then the others as further batches
    first = place.run(lines)
    second = place.run(str(place.folder / "log.parquet"))
    third = place.run(str(place.folder / "bare.parquet"))

    # Then they are the same messages
    assert by_status(first) == {("ShootingRange", "processed"): 2}
    assert by_status(second) == by_status(third) == {("ShootingRange", "duplicate"): 2}


@pytest.mark.thorough
def test_a_damaged_file(place):
    # Given a Parquet file with a page that was overwritten
    rows = place.spark.createDataFrame([("a", "FireAt", "{}")] * 500, ["message_id", "type", "body"])
    rows.coalesce(1).write.parquet(str(place.folder / "log.parquet"))
    (file,) = (place.folder / "log.parquet").glob("*.parquet")
    (file.with_name(f".{file.name}.crc")).unlink()
    data = bytearray(file.read_bytes())
    data[20:60] = bytes(40)
    file.write_bytes(data)

    with pytest.raises(LogError, match="cannot be read"):
        place.run(str(place.folder / "log.parquet"))


@pytest.mark.thorough
def test_a_folder_of_json_lines_is_read_as_such(place):
    write_lines(place.folder / "log" / "1.jsonl", [start(1, 5)])
    write_lines(place.folder / "log" / "2.jsonl", [fire(2, 5)])
    assert by_status(place.run(str(place.folder / "log"))) == {("ShootingRange", "processed"): 2}


def test_other_columns_are_of_no_account(place):
    # Not of literals, which Spark's optimiser would put into each expression: that takes half a minute.
    types = "message_id string, type string, body string, extra struct<m: map<string, int>>"
    log = place.spark.createDataFrame([("a", "Other", "{}", {"m": {"k": 1}})], types)
    assert by_status(place.run(log)) == {("-", "dead_letter", "unknown_type"): 1}


def test_msgpack_bodies_need_a_business_id(place):
    log = place.spark.createDataFrame(
        [("a", "FireAt", bytearray(b"x"))], "message_id string, type string, body binary"
    )
    with pytest.raises(LogError, match="needs a column business_id"):
        place.run(log)


_TIME = 1_767_225_600_000_000


def found(path) -> StructType | None:
    files = find_on_disk([str(path)], "parquet")
    schema = pq.read_schema(files.files[0])
    return _schema_of(list(zip(schema.names, schema.types, strict=True)), files)


def written(path, **columns: pa.Array):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)
    return path


def test_spark_finds_the_same(spark, tmp_path):
    columns = {
        "message_id": pa.array(["a"]),
        "Type": pa.array(["a"], pa.large_string()),
        **{
            f"n{each}": pa.array([1], each)
            for each in (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32())
        },
        "a b.c`d": pa.array([True]),
        "é": pa.array([1.0]),
        "us": pa.array([_TIME], pa.timestamp("us", "UTC")),
        "ms": pa.array([1], pa.timestamp("ms", "UTC")),
        "enqueued_at": pa.array([_TIME], pa.timestamp("us", "Europe/Berlin")),
        "headers": pa.array([[("k", "v")]], pa.map_(pa.string(), pa.string())),
    }
    written(tmp_path / "log" / "a", **columns)
    written(tmp_path / "log" / "b", **columns)
    ours = found(tmp_path / "log")

    assert ours is not None
    assert ours == spark.read.parquet(str(tmp_path / "log")).schema
    assert (
        open_log(spark, tmp_path / "log").rows.collect()
        == spark.read.parquet(str(tmp_path / "log")).collect()
    )


def test_spark_finds_the_same_in_what_it_has_written(spark, tmp_path):
    log = spark.sql(
        "select 'a' as message_id, 1L as sequence, timestamp '2026-01-01' as enqueued_at, map('k', 'v') as headers"
    )
    log.write.parquet(str(tmp_path / "log"))
    assert found(tmp_path / "log") is not None
    assert open_log(spark, tmp_path / "log").rows.schema == spark.read.parquet(str(tmp_path / "log")).schema


@pytest.mark.parametrize(
    "column",
    [
        pa.array([b"body"]),
        pa.array([_TIME], pa.timestamp("us")),
        pa.array([_TIME], pa.timestamp("ns", "UTC")),
        pa.array([1], pa.uint32()),
        pa.array([{"a": b"1"}]),
    ],
    ids=lambda column: str(column.type),
)
def test_other_types_are_left_to_spark(tmp_path, column):
    assert found(written(tmp_path / "log", message_id=pa.array(["a"]), column=column)) is None


def test_partitions_and_names_that_differ_in_case_are_left_to_spark(tmp_path):
    written(tmp_path / "partitioned" / "dt=1" / "a", message_id=pa.array(["a"]))
    assert found(tmp_path / "partitioned") is None
    assert found(written(tmp_path / "log", id=pa.array(["a"]), ID=pa.array(["a"]))) is None


PLAIN = {"message_id": ["a"], "type": ["FireAt"], "body": ["{}"]}
TEXTS = pa.map_(pa.string(), pa.string())
MORE = {
    "handler": pa.array(["ShootingRange"]),
    "sequence": pa.array([7]),
    "headers": pa.array([[("k", "v")]], TEXTS),
}
UNTYPED = dict.fromkeys(MORE, pa.nulls(1))
DOORS = ["folder", "list", "pattern", "partitions", "stream"]


def through(spark, door, folder, *files):
    """Return the rows of a log whose files have these columns beside the required ones, read through a door."""
    for number, columns in enumerate(files):
        place = folder / (f"dt={number}" if door == "partitions" else "") / f"{number}.parquet"
        written(place, **{**PLAIN, "message_id": pa.array([str(number)]), **columns})
    if door == "stream":
        stream = open_source(spark, str(folder), "parquet")
        query = (
            stream.writeStream.format("memory").queryName(f"read_{folder.name}").trigger(availableNow=True)
        )
        query.start().awaitTermination()
        rows = spark.table(f"read_{folder.name}")
    else:
        log = {"list": sorted(map(str, folder.glob("*"))), "pattern": f"{folder}/*.parquet"}.get(door, folder)
        rows = open_log(spark, log).rows
    return normalise(rows).orderBy("message_id").collect()


@pytest.mark.parametrize(
    "files",
    [
        ({}, MORE),
        pytest.param((MORE, {}), marks=pytest.mark.thorough),
        pytest.param((MORE, {**MORE, "sequence": pa.array([7], pa.int16())}, {}), marks=pytest.mark.thorough),
        pytest.param((UNTYPED, MORE, {}), id="untyped"),
        pytest.param(
            (
                {"body": pa.array([b"{}"])},
                {**MORE, "body": pa.array([b"{}"]), "business_id": pa.array(["g"])},
            ),
            marks=pytest.mark.thorough,
            id="bytes",
        ),
    ],
)
@pytest.mark.parametrize("door", DOORS)
def test_the_columns_of_a_log_are_those_of_all_its_files(spark, tmp_path, door, files):
    # Spark reads them in one relation: it is to stop, and not to leave values out.
    if (door == "pattern" and len(files) == 3) or (door == "stream" and files[0] is UNTYPED):
        with pytest.raises((LogError, StreamingQueryException)):
            through(spark, door, tmp_path, *files)
        return
    rows = through(spark, door, tmp_path, *files)
    has = ["ShootingRange" if columns.get("handler") is MORE["handler"] else None for columns in files]
    assert [row["handler"] for row in rows] == has
    assert [row["sequence"] for row in rows] == [each and 7 for each in has]
    assert [row["headers"] for row in rows] == [each and {"k": "v"} for each in has]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"enqueued_at": pa.array([_TIME], pa.timestamp("us", "UTC"))}, {"enqueued_at": pa.array(["2026"])}),
        (
            {"enqueued_at": pa.array([_TIME], pa.timestamp("us", "UTC"))},
            {"enqueued_at": pa.array([_TIME], pa.timestamp("us"))},
        ),
        ({"sequence": pa.array([1])}, {"sequence": pa.array(["1"])}),
        ({"headers": MORE["headers"]}, {"headers": pa.array(["{}"])}),
        ({"body": pa.array([{"a": 1}])}, {"body": pa.array([{"a": "1"}])}),
        ({"body": pa.array([{"a": 1}])}, {}),
    ],
)
@pytest.mark.parametrize(
    "door", ["folder", *(pytest.param(door, marks=pytest.mark.thorough) for door in DOORS[1:])]
)
def test_files_that_contradict_each_other_are_no_log(spark, tmp_path, door, one, other):
    with pytest.raises(LogError, match=r"contradict|cannot be read as parquet"):
        through(spark, door, tmp_path, one, other)


def test_a_body_of_a_file_may_have_fields_that_others_lack(spark, tmp_path):
    rows = through(
        spark,
        "folder",
        tmp_path,
        {"body": pa.array([{"a": 1}])},
        {"body": pa.array([{"b": {"c": "x"}, "a": 2}])},
    )
    assert [json.loads(row["body"]) for row in rows] == [{"a": 1}, {"a": 2, "b": {"c": "x"}}]


def test_a_stream_reads_columns_that_come_later(spark, tmp_path):
    written(tmp_path / "source" / "0.parquet", **PLAIN)
    stream = (
        open_source(spark, str(tmp_path / "source"), "parquet")
        .writeStream.format("memory")
        .queryName("later")
    )
    query = stream.start()
    query.processAllAvailable()
    written(tmp_path / "source" / "1.parquet", **{**PLAIN, "message_id": ["b"]}, **MORE)
    query.processAllAvailable()
    query.stop()
    rows = spark.table("later").orderBy("message_id").select(*MORE).collect()
    assert [tuple(row) for row in rows] == [(None, None, None), ("ShootingRange", 7, {"k": "v"})]


def test_a_file_that_is_cut_short_is_no_log(spark, tmp_path):
    log = written(tmp_path / "log", message_id=pa.array(["a"]))
    log.write_bytes(log.read_bytes()[:-1])
    with pytest.raises(LogError, match="cannot be read"):
        open_log(spark, log)


CONTENT = [
    ("a", "FireAt", '{"game_id":1}', {"tenant": "x"}),
    ("b", "FireAt", "{}", None),
    ("c", "", "{}", {}),
]
SCHEMA = "message_id string, type string, body string, headers map<string,string>"


@pytest.fixture
def named(spark):
    def describe(log) -> Input:
        return describe_input(open_log(spark, log))

    return describe


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b'{"message_id":"a","type":"t","body":"{}"}\n{}\n', marks=pytest.mark.thorough),
        b"\n\n  \n{}\r\n\r\n{}\r{}",
        b"\xef\xbb\xbf{}\n\t\n\x00\n\xff\xfe\n\xe2\x80\xa8\n\x0b\n\x0c\n \x85 \n",
        pytest.param(b"\xef\xbb\xbf\xef\xbb\xbf\n{}", marks=pytest.mark.thorough),
        pytest.param(b"x" * 200_000 + b"\n \n" + b"y" * 2_000_000, marks=pytest.mark.thorough),
    ],
)
def test_its_messages_are_counted_as_spark_does(spark, named, tmp_path, data):
    (tmp_path / "log.jsonl").write_bytes(data)
    log = tmp_path / "log.jsonl"
    assert named(log).name.startswith("digest ")
    assert named(log).messages == open_log(spark, log).rows.count()


def test_rows_are_the_same_in_any_order_and_partitions(spark, named):
    given = named(spark.createDataFrame(CONTENT, SCHEMA))
    assert given == named(spark.createDataFrame(CONTENT[::-1], SCHEMA).repartition(3))
    assert given.messages == 3
    assert given.name.startswith("checksum ")


@pytest.mark.thorough
@pytest.mark.parametrize(
    "changed", [CONTENT[:2], [*CONTENT, CONTENT[0]], [("d", *CONTENT[0][1:]), *CONTENT[1:]]]
)
def test_other_rows_are_another_log(spark, named, changed):
    assert named(spark.createDataFrame(CONTENT, SCHEMA)) != named(spark.createDataFrame(changed, SCHEMA))


@pytest.mark.thorough
def test_files_that_spark_has_written_are_read_here_unless_they_were_changed_since(spark, named, tmp_path):
    # Given a file with Hadoop's checksums beside it
    spark.createDataFrame(CONTENT, SCHEMA).coalesce(1).write.json(str(tmp_path / "log.jsonl"))
    (file,) = (tmp_path / "log.jsonl").glob("part-*")
    assert file.with_name(f".{file.name}.crc").exists()
    assert named(tmp_path / "log.jsonl").name.startswith("digest ")


def source(spark, path, format_):
    return open_source(spark, str(path), format_)


def log(spark, path, format_):
    return open_log(spark, path, format_).rows


ENTRANCES = pytest.mark.parametrize("opened", [log, source])


@ENTRANCES
@pytest.mark.parametrize("lacking", ["message_id", "type", "body"])
def test_lines_that_all_lack_what_parquet_is_refused_for_are_no_log(spark, tmp_path, opened, lacking):
    lines = [{**{name: value for name, value in row.items() if name != lacking}, "id": "m"} for row in ROWS]
    write_lines(tmp_path / "log" / "a.jsonl", lines)
    with pytest.raises(LogError, match=f"lacks the column {lacking}"):
        opened(spark, tmp_path / "log", "json")
    # ... while one that has it makes the others dead letters
    write_lines(tmp_path / "log" / "b.jsonl", ROWS[:1])
    assert opened(spark, tmp_path / "log", "json").columns == ["line"]


@ENTRANCES
@pytest.mark.parametrize("at", ["", "dt=1", "dt=1/a.parquet"])
@pytest.mark.parametrize("mark", ["_delta_log", ".hoodie"])
def test_tables_with_deleted_rows_are_no_logs(spark, tmp_path, opened, at, mark):
    if at.endswith(".parquet") and opened is source:
        at = "dt=1"
    written(tmp_path / "table" / "dt=1" / "a.parquet", **PLAIN)
    (tmp_path / "table" / mark).mkdir()
    (tmp_path / "table" / mark / "0.json").write_text("{}")
    with pytest.raises(LogError, match="table: read it with its own reader"):
        opened(spark, tmp_path / "table" / at, "parquet")
    with pytest.raises(LogError, match="table: read it with its own reader"):
        open_log(spark, f"{tmp_path}/table/dt=*/*.parquet")


ODD = ["a[1]", "a?", "a*", "a{}", "a{b,c}", "a\\b", "a b%20#", "ä;=+&"]


@pytest.mark.parametrize("name", ODD)
def test_a_name_that_is_there_is_no_pattern(spark, tmp_path, name):
    write(tmp_path / f"{name}.jsonl", ROWS[:1])
    for other in ("a1", "ab", "ac", "axx"):
        write(tmp_path / f"{other}.jsonl", [start(9, 1)])
    for path in (tmp_path / f"{name}.jsonl", str(tmp_path / f"{name}.jsonl")):
        assert ids(spark, path) == (IDS[:1], [])


def test_a_stream_may_begin_with_empty_files(spark, tmp_path):
    (tmp_path / "a.jsonl").touch()
    (tmp_path / "_b.jsonl").touch()
    with pytest.warns(UserWarning, match="_b"):
        assert source(spark, tmp_path, "json").columns == ["line"]


@ENTRANCES
def test_a_colon_in_the_name_of_a_file_is_refused(spark, tmp_path, opened):
    write(tmp_path / "a:b.jsonl", ROWS)
    with pytest.raises(LogError, match="colon"):
        opened(spark, tmp_path, "json")


_NS = pa.array([_TIME * 1000], pa.timestamp("ns", "UTC"))
_AT = pa.array([_TIME], pa.timestamp("us", "UTC"))
_STRUCT = pa.StructArray.from_arrays(
    [pa.array([7], pa.uint64()), _NS, pa.array(["x"]).cast(pa.string_view())], "abc"
)


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        ({"sequence": pa.array([7], pa.uint64())}, 7),
        ({"sequence": pa.array([7], pa.uint8())}, 7),
        ({"handler": pa.array(["x"]).cast(pa.string_view())}, "x"),
        ({"handler": pa.array(["x"]).dictionary_encode()}, "x"),
        ({"handler": pa.array(["x"], pa.large_string())}, "x"),
        ({"enqueued_at": _NS}, _AT[0].as_py().astimezone(UTC)),
        ({"enqueued_at": _NS.cast(pa.timestamp("ns"))}, _AT[0].as_py().astimezone(UTC)),
        ({"enqueued_at": _AT.cast(pa.timestamp("s", "UTC"))}, _AT[0].as_py().astimezone(UTC)),
        ({"headers": pa.array([[("k", "v")]], pa.map_(pa.large_string(), pa.string_view()))}, {"k": "v"}),
        ({"headers": pa.nulls(1)}, None),
        ({"body": _STRUCT}, {"a": 7, "b": "2026-01-01T00:00:00.000000Z", "c": "x"}),
        ({"body": pa.array([{"a": [{"b": 1}]}])}, {"a": [{"b": 1}]}),
        ({"more": pa.array([[1]], pa.large_list(pa.uint64()))}, None),
    ],
)
def test_columns_of_arrow_that_spark_has_no_type_for_are_cast(spark, column, expected):
    (row,) = normalise(open_log(spark, pa.table({**PLAIN, **column})).rows).collect()
    assert row["problem"] is None
    found = row.asDict().get(next(iter(column)))
    if "body" in column:
        found = json.loads(row["body"])
    if "enqueued_at" in column:
        found = row["enqueued_at"].astimezone(UTC)
    assert found == expected


@pytest.mark.parametrize(
    "column",
    [
        {"sequence": pa.array([2**63], pa.uint64())},
        {"enqueued_at": pa.array([1], pa.timestamp("ns", "UTC"))},
        {"body": pa.array([{"a": 2**63}], pa.struct([("a", pa.uint64())]))},
        {"Body": pa.array(["{}"])},
        {"more": pa.array(["{}"]), "More": pa.array(["{}"])},
        {"body": pa.array([None], pa.month_day_nano_interval())},
        {"more": pa.array([[1]], pa.list_view(pa.int64()))},
    ],
    ids=["too large", "too fine", "in a struct", "twice", "twice, of others", "no type", "a view of a list"],
)
def test_columns_of_arrow_that_cannot_be_cast(spark, column):
    with pytest.raises(LogError, match=next(iter(column)).lower()):
        normalise(open_log(spark, pa.table({**PLAIN, **column})).rows)


def test_unsigned_numbers_of_a_file(spark, tmp_path):
    written(
        tmp_path / "log",
        **{name: 2 * each for name, each in PLAIN.items()},
        sequence=pa.array([7, 2**63], pa.uint64()),
    )
    rows = normalise(open_log(spark, tmp_path / "log").rows).collect()
    assert [(row["sequence"], row["problem"] is None) for row in rows] == [(7, True), (None, False)]


class Colour(Enum):
    RED = "red"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Decimal("0.12345678901234567890"), "0.12345678901234567890"),
        (datetime(2026, 1, 1, tzinfo=UTC), "2026-01-01T00:00:00+00:00"),
        (pd.Timestamp(1, tz="UTC"), "1970-01-01T00:00:00.000000001+00:00"),
        (pd.NaT, None),
        (date(2026, 1, 1), "2026-01-01"),
        (timedelta(seconds=1), "PT1S"),
        (UUID(int=1), str(UUID(int=1))),
        (Colour.RED, "red"),
        (frozenset({1}), [1]),
        (2**70, 2**70),
        (np.int64(7), 7),
        (np.float32(0.5), 0.5),
        (np.bool_(1), True),
        (np.datetime64("2026-01-01T00:00:00.000000001"), "2026-01-01T00:00:00.000000001"),
        (np.array([[1, 2]]), [[1, 2]]),
        (np.array([{"a": Decimal(1)}]), [{"a": "1"}]),
    ],
)
def test_what_dicts_of_pandas_hold_is_json(spark, tmp_path, value, expected):
    row = {"message_id": "a", "type": "T", "body": {"x": [value]}}
    write_log([row], tmp_path / "log.jsonl")
    for log in (pd.DataFrame([row]), tmp_path / "log.jsonl"):
        (found,) = normalise(open_log(spark, log).rows).collect()
        assert (found["problem"], json.loads(found["body"])) == (None, {"x": [expected]})


@pytest.mark.parametrize("value", [object(), np.timedelta64(1, "ns"), pd.NA])
def test_what_is_no_json_in_a_dict_of_pandas(spark, value):
    with pytest.raises(LogError, match="cannot be read"):
        open_log(spark, pd.DataFrame([{"message_id": "a", "type": "T", "body": {"x": value}}]))


COLUMNS = f"{SCHEMA}, business_id string, sequence bigint, enqueued_at timestamp, handler string"
NULLS = [each.split()[0] for each in COLUMNS.split(", ")]


@pytest.mark.parametrize("name", ["line", *NULLS])
def test_a_null_in_a_column_that_is_needed_is_a_dead_letter(place, name):
    values = [
        None if each == name else {"message_id": "m", "type": "Other", "body": "{}"}.get(each)
        for each in NULLS
    ]
    schema, row = ("line string", (None,)) if name == "line" else (COLUMNS, tuple(values))
    (found,) = place.run(place.spark.createDataFrame([row], schema)).collect()
    is_needed = name in ("message_id", "type", "body", "line")
    assert found.reason == ("invalid_envelope" if is_needed else "unknown_type")
    assert found.delivery


# Each door makes the checks of all others.


def lines(folder, **changes):
    """Make a log of one line, in which None leaves a column out."""
    row = {name: value for name, value in {**ROWS[0], **changes}.items() if value is not None}
    write(folder / "a.jsonl", [row])


def rows_with(folder, **columns):
    written(folder / "a.parquet", **{**PLAIN, **columns})


def hide(folder, name):
    written(folder / "a.parquet", **PLAIN)
    (folder / name).mkdir()


def touch(folder, name):
    folder.mkdir()
    (folder / name).touch()


ON_DISK = {
    "Delta": lambda folder: hide(folder, "_delta_log"),
    "Hudi": lambda folder: hide(folder, ".hoodie"),
    "a colon": lambda folder: write(folder / "a:b.jsonl", ROWS),
    "hidden": lambda folder: rows_with(folder / "_a"),
    "no files": Path.mkdir,
    "two formats": lambda folder: (lines(folder), rows_with(folder)),
    "no Parquet": lambda folder: touch(folder, "a.parquet"),
    "no folder": lambda folder: None,
}
COLUMNS_AMISS = {
    "no type": lambda folder: written(folder / "a.parquet", message_id=["m"], body=["{}"]),
    "floats": lambda folder: rows_with(folder, sequence=pa.array([1.5])),
    "dates": lambda folder: rows_with(folder, enqueued_at=pa.array([1], pa.date32())),
    "headers of numbers": lambda folder: rows_with(
        folder, headers=pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64()))
    ),
    "numbers for texts": lambda folder: rows_with(folder, message_id=pa.array([1])),
    "a list": lambda folder: rows_with(folder, body=pa.array([["{}"]])),
    "msgpack without ids": lambda folder: rows_with(folder, body=pa.array([b"\x80"])),
    "a line of bytes": lambda folder: written(folder / "a.parquet", line=pa.array([b"{}"])),
}
BOTH = {
    "Body": lambda folder: rows_with(folder, Body=pa.array(["{}"])),
    "lines without type": lambda folder: lines(folder, type=None),
    "contradicting": lambda folder: [
        rows_with(folder / name, sequence=pa.array([value])) for name, value in [("a", 1), ("b", "1")]
    ],
}


def command(place, log):
    check_log(str(log), "local[2]", None)


def command_of_streams(place, log):
    format_: SourceFormat = "json" if any(log.rglob("*.jsonl")) else "parquet"
    check_source_folder(str(log), "local[2]", {})
    streamed(place, open_source(place.spark, str(log), format_))


def streamed(place, df):
    where = {"store": place.store, "table": place.table, "out": place.out, "query": "q"}
    query = run_stream(
        df, place.app, **where, checkpoint=str(place.folder / "checkpoint"), trigger="available-now"
    )
    query.awaitTermination()


def read_as(place, log, reader):
    return reader.schema(place.spark.read.parquet(str(log)).schema).parquet(str(log))


OF_PATHS = {
    "run_batch": lambda place, log: place.run(log),
    "verify": lambda place, log: verify(
        place.spark, str(log), place.app, store=place.store, table=place.table
    ),
    "issue": lambda place, log: place.issue(log),
    "stream": command_of_streams,
}
OF_TABLES = {
    "DataFrame": lambda place, log: place.run(read_as(place, log, place.spark.read)),
    "streaming DataFrame": lambda place, log: streamed(place, read_as(place, log, place.spark.readStream)),
    "Arrow": lambda place, log: place.run(pq.read_table(log)),
    "pandas": lambda place, log: place.run(pq.read_table(log).to_pandas()),
}


OFTEN = {"command", "run_batch", "stream", "streaming DataFrame"}


@pytest.mark.parametrize(
    ("door", "make"),
    [
        pytest.param(door, make, marks=[] if name in OFTEN else pytest.mark.thorough, id=f"{name}-{what}")
        for doors, makes in [
            ({"command": command}, ON_DISK | {"nothing": lambda folder: touch(folder, "a.jsonl")}),
            (OF_PATHS, ON_DISK | COLUMNS_AMISS | BOTH),
            (OF_TABLES, COLUMNS_AMISS),
        ]
        for name, door in doors.items()
        for what, make in makes.items()
    ],
)
def test_what_is_no_log_is_refused_at_each_door_before_the_ledger(place, door, make):
    make(place.folder / "log")
    with pytest.raises(LogError):
        door(place, place.folder / "log")
    assert not Path(place.out).exists()
    assert place.batches() == []


@pytest.mark.thorough
@pytest.mark.parametrize("suffix", ["jsonl", pytest.param("parquet", marks=pytest.mark.thorough)])
@pytest.mark.parametrize("folder", ["odd[1]{a}?*\\ ä%20", pytest.param("a:b", marks=pytest.mark.thorough)])
def test_files_and_folders_may_have_any_names_at_each_door(place, suffix, folder):
    log = place.folder / folder
    for number, name in enumerate(ODD):
        write(log / f"{name}.{suffix}", [start(number, number % 7)])
    (place.folder / "odd1a??").mkdir()

    assert place.run(log).where("status = 'processed'").count() == len(ODD)
    files = [str(file) for file in log.iterdir()]
    if ":" in folder:  # which Spark takes for a scheme when it looks for the signs of a pattern beside it
        with pytest.raises(LogError):
            place.run(files)
    else:
        assert place.run(files).where("status = 'duplicate'").count() == len(ODD)
    found = verify(place.spark, log, place.app, store=place.store, table=place.table)
    assert found.deliveries == len(ODD)
    assert place.issue(str(log)).deliveries == len(ODD)
    check_log(str(log), "local[2]", None)
    (place.folder / "streamed").mkdir()
    OF_PATHS["stream"](replace(place, folder=place.folder / "streamed"), log)
    assert place.spark.read.parquet(f"{place.folder}/streamed/out").count() == len(ODD)
