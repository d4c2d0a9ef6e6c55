"""Logs as they are given: paths, tables, files of any depth; what names a log, and what is none."""

import gzip
import json

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import StructType

from runtime.errors import LogError, UsageError
from runtime.spark.logs import read as reading
from runtime.spark.logs.normalise import normalise
from runtime.spark.logs.read import Input, _schema_of, describe_input, find_on_disk, open_log
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
    return _schema_of(find_on_disk([str(path)], "parquet"))


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


def test_files_that_differ_are_left_to_spark(tmp_path):
    written(tmp_path / "log" / "a", message_id=pa.array(["a"]))
    assert found(tmp_path / "log") is not None
    written(tmp_path / "log" / "b", message_id=pa.array(["a"]), type=pa.array(["T"]))
    assert found(tmp_path / "log") is None


def test_partitions_names_that_differ_in_case_and_very_many_files_are_left_to_spark(tmp_path, monkeypatch):
    written(tmp_path / "partitioned" / "dt=1" / "a", message_id=pa.array(["a"]))
    assert found(tmp_path / "partitioned") is None
    assert found(written(tmp_path / "log", id=pa.array(["a"]), ID=pa.array(["a"]))) is None
    monkeypatch.setattr(reading, "_MOST_FILES", 0)
    assert found(written(tmp_path / "one", id=pa.array(["a"]))) is None


def test_a_file_that_is_cut_short_is_left_to_spark(tmp_path):
    log = written(tmp_path / "log", message_id=pa.array(["a"]))
    log.write_bytes(log.read_bytes()[:-1])
    assert found(log) is None


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
        pytest.param(b'{"message_id":"a"}\n{}\n', marks=pytest.mark.thorough),
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
