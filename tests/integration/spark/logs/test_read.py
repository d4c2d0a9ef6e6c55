"""Logs as they are given: paths, tables, files of any depth; what names a log, and what is none."""

import gzip
import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from functools import reduce
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame

from runtime.cli.checks import check_log, check_source
from runtime.errors import LogError, UsageError
from runtime.messages.records import AS_JSON
from runtime.spark import run_stream
from runtime.spark.logs.normalise import normalise
from runtime.spark.logs.read import _schema_of, describe_input, find_on_disk, open_log, write_log
from runtime.spark.streaming import open_source
from tests.support.logs import fire, message_id, start, write_lines

ROWS = [start(1, 5), fire(2, 5)]
IDS = [row["message_id"] for row in ROWS]
PLAIN = {"message_id": ["a"], "type": ["FireAt"], "body": ["{}"]}
NAMES = "message_id string, type string, body string"
MICROS = 1_767_225_600_000_000


def ids(spark, log):
    """Return the ids of the messages of a log, and what is said of it."""
    said: list[str] = []
    rows = normalise(open_log(spark, log, say=said.append).rows).select("message_id", "problem").collect()
    assert not [row["problem"] for row in rows if row["problem"]]
    return sorted(row["message_id"] for row in rows), said


def write(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        write_lines(path, rows)


def written(path, **columns):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)
    return path


@pytest.mark.connect
@pytest.mark.thorough
@pytest.mark.parametrize(
    ("files", "log"),
    [
        (("dt=1/a.jsonl", "dt=2/b.jsonl"), ["{}"]),
        (("dt=1/a.parquet", "dt=2/b.parquet"), ["{}"]),
        (("a.jsonl", "2026/01/b.jsonl"), ["{}"]),
        (("a.parquet", "2026/01/b.parquet"), ["{}"]),
        (("a.jsonl", "dt=2/b.jsonl"), ["file:{}"]),
        (("a.parquet", "dt=2/b.parquet"), ["{}"]),
        (("type=StartNewRound/a.parquet", "type=FireAt/a.parquet"), ["{}"]),
        (("north/a.jsonl", "south/b.jsonl"), ["{}/*/*.jsonl"]),
        (("north/a.jsonl", "south/b.jsonl"), ["{}/north", "{}/south/b.jsonl"]),
    ],
)
def test_files_are_found_at_any_depth_by_several_paths_and_by_patterns(spark, tmp_path, files, log):
    for row, file in zip(ROWS, files, strict=True):  # a column that a folder names is in no file
        write(tmp_path / file, [{name: row[name] for name in row if f"{name}=" not in file}])

    assert ids(spark, [each.format(tmp_path) for each in log]) == (IDS, [])


MARK = b"\xef\xbb\xbf"


@pytest.mark.connect
@pytest.mark.thorough
@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_a_byte_order_mark_is_passed_over_at_the_beginning_of_a_file_only(spark, tmp_path, pack):
    one, two = (json.dumps(row).encode() + b"\n" for row in ROWS)
    for content, are_bad in [
        (MARK + one + two, [False, False]),
        (MARK + b"\n \t\n\t\n" + one, [False]),
        (one + MARK + two, [False, True]),
        (MARK + MARK + one, [True]),
        (MARK, []),
    ]:
        log = tmp_path / ("log.jsonl" if pack is bytes else "log.jsonl.gz")
        log.write_bytes(pack(content))
        rows = normalise(open_log(spark, log).rows).collect()
        assert [row["problem"] is not None for row in rows] == are_bad


@pytest.mark.connect
def test_what_spark_passes_over_is_told_and_all_else_is_read(spark, tmp_path):
    write(tmp_path / "a.jsonl", ROWS[:1])
    write(tmp_path / "dt=2026-01-01" / "b.jsonl", ROWS[1:])
    write(tmp_path / "_c.jsonl", [start(9, 1)])
    (tmp_path / ".b.jsonl.crc").touch()

    found, (said,) = ids(spark, tmp_path)
    assert (found, "(_c.jsonl)" in said) == (IDS, True)


@pytest.mark.connect
@pytest.mark.parametrize(
    ("log", "error"),
    [
        ("foo://x/y", LogError),  # a file system that Spark does not know
        *((log, UsageError) for log in (7, [], ["a.jsonl", 7], {"message_id": ["m1"]})),
        *(
            (pd.DataFrame([{"message_id": "a", "type": "T", "body": {"x": value}}]), LogError)
            for value in (object(), np.timedelta64(1, "ns"), pd.NA)
        ),
    ],
)
def test_what_is_no_log_at_all(spark, log, error):
    with pytest.raises(error):
        open_log(spark, log)


@pytest.mark.connect
def test_tables_of_pandas_and_arrow(spark):
    frame = pd.DataFrame([{**row, "headers": None} for row in ROWS])
    frame.loc[0, "sequence"] = None  # which makes floats of the others

    for table in (frame, pa.Table.from_pandas(frame.drop(columns="sequence"))):
        assert ids(spark, table) == (IDS, [])


@pytest.mark.thorough
def test_a_damaged_page_of_parquet(place):
    rows = place.spark.createDataFrame([("a", "FireAt", "{}")] * 500, ["message_id", "type", "body"])
    rows.coalesce(1).write.parquet(str(place.folder / "log.parquet"))
    (file,) = (place.folder / "log.parquet").glob("*.parquet")
    (file.with_name(f".{file.name}.crc")).unlink()
    data = bytearray(file.read_bytes())
    data[20:60] = bytes(40)
    file.write_bytes(data)

    with pytest.raises(LogError, match="cannot be read"):
        place.run(str(place.folder / "log.parquet"))


def schema_of(path):
    """Return the schema of a log that is found without Spark, None where it is left to Spark."""
    files = find_on_disk([str(path)], "parquet")
    schema = pq.read_schema(files.files[0])
    return _schema_of(list(zip(schema.names, schema.types, strict=True)), files)


def test_spark_finds_the_same(spark, tmp_path):
    numbers = (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32())
    columns = {
        "message_id": pa.array(["a"]),
        "Type": pa.array(["a"], pa.large_string()),
        **{f"n{each}": pa.array([1], each) for each in numbers},
        "a b.c`d": pa.array([True]),
        "é": pa.array([1.0]),
        "us": pa.array([MICROS], pa.timestamp("us", "UTC")),
        "ms": pa.array([1], pa.timestamp("ms", "UTC")),
        "enqueued_at": pa.array([MICROS], pa.timestamp("us", "Europe/Berlin")),
        "headers": pa.array([[("k", "v")]], pa.map_(pa.string(), pa.string())),
    }
    for name in ("a", "b"):
        written(tmp_path / "log" / name, **columns)
    theirs = spark.read.parquet(str(tmp_path / "log"))

    assert schema_of(tmp_path / "log") == theirs.schema
    assert open_log(spark, tmp_path / "log").rows.collect() == theirs.collect()

    # ... in what Spark has written, too
    spark.sql(
        "select 'a' as message_id, timestamp '2026-01-01' as enqueued_at, map('k', 'v') as headers"
    ).write.parquet(str(tmp_path / "of Spark"))
    assert schema_of(tmp_path / "of Spark") is not None
    assert (
        open_log(spark, tmp_path / "of Spark").rows.schema
        == spark.read.parquet(str(tmp_path / "of Spark")).schema
    )


def test_other_types_names_that_differ_in_case_and_partitions_are_left_to_spark(tmp_path):
    for column in (
        pa.array([b"body"]),
        pa.array([MICROS], pa.timestamp("us")),
        pa.array([MICROS], pa.timestamp("ns", "UTC")),
        pa.array([1], pa.uint32()),
        pa.array([{"a": b"1"}]),
    ):
        assert schema_of(written(tmp_path / "log", message_id=pa.array(["a"]), column=column)) is None
    assert schema_of(written(tmp_path / "log", id=pa.array(["a"]), ID=pa.array(["a"]))) is None
    written(tmp_path / "partitioned" / "dt=1" / "a", message_id=pa.array(["a"]))
    assert schema_of(tmp_path / "partitioned") is None


MORE = {
    "handler": pa.array(["ShootingRange"]),
    "sequence": pa.array([7]),
    "headers": pa.array([[("k", "v")]], pa.map_(pa.string(), pa.string())),
}
UNTYPED = dict.fromkeys(MORE, pa.nulls(1))
PACKED = {"body": pa.array([b"{}"])}
DOORS = ["folder", "list", "pattern", "partitions", "stream"]


def through(spark, door, folder, *files):
    """Return the rows of a log whose files have these columns beside the required ones, read through a door."""
    for number, columns in enumerate(files):
        place = folder / (f"dt={number}" if door == "partitions" else "") / f"{number}.parquet"
        written(place, **{**PLAIN, "message_id": pa.array([str(number)]), **columns})
    if door == "stream":
        stream = open_source(spark, str(folder), "parquet").writeStream.format("memory").queryName("read")
        stream.trigger(availableNow=True).start().awaitTermination()
        rows = spark.table("read")
        spark.catalog.dropTempView("read")
    else:
        log = {"list": sorted(map(str, folder.glob("*"))), "pattern": f"{folder}/*.parquet"}.get(door, folder)
        rows = open_log(spark, log).rows
    return normalise(rows).orderBy("message_id").collect()


@pytest.mark.parametrize(
    ("door", "files"),
    [
        pytest.param(
            door, files, marks=[] if (door, name) in often else pytest.mark.thorough, id=f"{door}-{name}"
        )
        for often in [{("folder", "later"), ("partitions", "untyped"), ("stream", "later")}]
        for door in DOORS
        for name, files in {
            "later": ({}, MORE),
            "earlier": (MORE, {}),
            "narrower": (MORE, {**MORE, "sequence": pa.array([7], pa.int16())}, {}),
            "untyped": (UNTYPED, MORE, {}),
            "bytes": (PACKED, {**MORE, **PACKED, "business_id": pa.array(["g"])}),
        }.items()
    ],
)
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


IN_UTC = {"enqueued_at": pa.array([MICROS], pa.timestamp("us", "UTC"))}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (IN_UTC, {"enqueued_at": pa.array(["2026"])}),
        (IN_UTC, {"enqueued_at": pa.array([MICROS], pa.timestamp("us"))}),
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


def test_a_stream_reads_columns_that_come_later(spark, tmp_path):
    written(tmp_path / "0.parquet", **PLAIN)
    stream = open_source(spark, str(tmp_path), "parquet").writeStream.format("memory").queryName("later")
    query = stream.start()
    query.processAllAvailable()
    written(tmp_path / "1.parquet", **{**PLAIN, "message_id": ["b"]}, **MORE)
    query.processAllAvailable()
    query.stop()
    rows = spark.table("later").orderBy("message_id").select(*MORE).collect()
    spark.catalog.dropTempView("later")
    assert [tuple(row) for row in rows] == [(None, None, None), ("ShootingRange", 7, {"k": "v"})]


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
def test_its_messages_are_counted_as_spark_does(spark, tmp_path, data):
    (tmp_path / "log.jsonl").write_bytes(data)
    log = open_log(spark, tmp_path / "log.jsonl")
    named = describe_input(log)
    assert named.name.startswith("digest ")
    assert named.messages == log.rows.count()


def test_tables_are_one_log_whatever_the_order_of_their_rows_and_another_with_other_rows(spark):
    rows = [
        ("a", "FireAt", '{"game_id":1}', {"tenant": "x"}),
        ("b", "FireAt", "{}", None),
        ("c", "", "{}", {}),
    ]
    others = [rows[:2], [*rows, rows[0]], [("d", *rows[0][1:]), *rows[1:]]]

    def named(rows, partitions=1):
        frame = spark.createDataFrame(rows, f"{NAMES}, headers map<string,string>")
        return describe_input(open_log(spark, frame.repartition(partitions)))

    assert named(rows) == named(rows[::-1], 3)
    assert named(rows).messages == 3
    assert len({named(each).name for each in (rows, *others)}) == 4


def source(spark, path, format_):
    return open_source(spark, str(path), format_)


def log(spark, path, format_):
    return open_log(spark, path, format_).rows


@pytest.mark.parametrize("lacking", ["message_id", "type", "body"])
def test_lines_that_all_lack_what_parquet_is_refused_for_are_no_log(spark, tmp_path, lacking):
    lines = [{**{name: value for name, value in row.items() if name != lacking}, "id": "m"} for row in ROWS]
    write_lines(tmp_path / "log" / "a.jsonl", lines)
    for opened in (log, source):
        with pytest.raises(LogError, match=f"lacks the column {lacking}"):
            opened(spark, tmp_path / "log", "json")
    # ... while one that has it makes the others dead letters
    write_lines(tmp_path / "log" / "b.jsonl", ROWS[:1])
    for opened in (log, source):
        assert opened(spark, tmp_path / "log", "json").columns == ["line"]


@pytest.mark.parametrize("mark", ["_delta_log", ".hoodie"])
def test_tables_with_deleted_rows_are_no_logs(spark, tmp_path, mark):
    file = written(tmp_path / "table" / "dt=1" / "a.parquet", **PLAIN)
    (tmp_path / "table" / mark).mkdir()
    (tmp_path / "table" / mark / "0.json").write_text("{}")
    folder = file.parent
    doors = [(log, folder.parent), (log, folder), (log, file), (source, folder.parent), (source, folder)]
    for opened, path in [*doors, (log, f"{tmp_path}/table/dt=*/*.parquet")]:
        with pytest.raises(LogError, match="table: read it with its own reader"):
            opened(spark, path, "parquet")


ODD = ["a[1]", "a?", "a*", "a{}", "a{b,c}", "a\\b", "a b%20#", "ä;=+&"]


def test_a_name_that_is_there_is_no_pattern(spark, tmp_path):
    for number, name in enumerate(ODD):
        write(tmp_path / f"{name}.jsonl", [start(number, 1)])
    for name in ("a1", "ab", "ac", "axx"):
        write(tmp_path / f"{name}.jsonl", [start(99, 1)])

    # ... by a path or by a text
    paths = [tmp_path / f"{name}.jsonl" for name in ODD]
    opened = [open_log(spark, str(path) if number % 2 else path).rows for number, path in enumerate(paths)]

    found = normalise(reduce(DataFrame.union, opened)).collect()
    assert sorted(each["message_id"] for each in found) == [message_id(number) for number in range(len(ODD))]


def test_a_stream_may_begin_with_empty_files(spark, tmp_path):
    (tmp_path / "a.jsonl").touch()
    (tmp_path / "_b.jsonl").touch()
    with pytest.warns(UserWarning, match="_b"):
        assert source(spark, tmp_path, "json").columns == ["line"]


_NS = pa.array([MICROS * 1000], pa.timestamp("ns", "UTC"))
_AT = pa.array([MICROS], pa.timestamp("us", "UTC"))
_STRUCT = pa.StructArray.from_arrays(
    [pa.array([7], pa.uint64()), _NS, pa.array(["x"]).cast(pa.string_view())], "abc"
)


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (
            {"sequence": pa.array([7], pa.uint64()), "handler": pa.array(["x"]).cast(pa.string_view())},
            [7, "x"],
        ),
        ({"sequence": pa.array([7], pa.uint8()), "handler": pa.array(["x"]).dictionary_encode()}, [7, "x"]),
        ({"enqueued_at": _NS, "handler": pa.array(["x"], pa.large_string())}, [_AT, "x"]),
        ({"enqueued_at": _NS.cast(pa.timestamp("ns")), "headers": pa.nulls(1)}, [_AT, None]),
        ({"enqueued_at": _AT.cast(pa.timestamp("s", "UTC"))}, [_AT]),
        ({"headers": pa.array([[("k", "v")]], pa.map_(pa.large_string(), pa.string_view()))}, [{"k": "v"}]),
        ({"body": _STRUCT}, [{"a": 7, "b": "2026-01-01T00:00:00.000000Z", "c": "x"}]),
        ({"body": pa.array([{"a": [{"b": 1}]}])}, [{"a": [{"b": 1}]}]),
        ({"more": pa.array([[1]], pa.large_list(pa.uint64()))}, [None]),
    ],
)
def test_columns_of_arrow_that_spark_has_no_type_for_are_cast(spark, column, expected):
    (row,) = normalise(open_log(spark, pa.table({**PLAIN, **column})).rows).collect()
    assert row["problem"] is None
    found = [row.asDict().get(name) for name in column]
    if "body" in column:
        found = [json.loads(row["body"])]
    if "enqueued_at" in column:
        found[0], expected = (
            row["enqueued_at"].astimezone(UTC),
            [_AT[0].as_py().astimezone(UTC), *expected[1:]],
        )
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
    numbers = pa.array([7, 2**63], pa.uint64())
    written(tmp_path / "log", **{name: 2 * each for name, each in PLAIN.items()}, sequence=numbers)
    rows = normalise(open_log(spark, tmp_path / "log").rows).collect()
    assert [(row["sequence"], row["problem"] is None) for row in rows] == [(7, True), (None, False)]


class Colour(Enum):
    RED = "red"


IN_JSON = [
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
]


def test_what_dicts_of_pandas_hold_is_json(spark, tmp_path):
    rows = [
        {"message_id": chr(65 + n), "type": "T", "body": {"x": [value]}}
        for n, (value, _) in enumerate(IN_JSON)
    ]
    write_log(rows, tmp_path / "log.jsonl")
    for log in (pd.DataFrame(rows), tmp_path / "log.jsonl"):
        found = normalise(open_log(spark, log).rows).orderBy("message_id").collect()
        assert [row["problem"] for row in found] == [None] * len(rows)
        assert [json.loads(row["body"])["x"] for row in found] == [[expected] for _, expected in IN_JSON]


def lines(folder, **changes):
    """Make a log of one line, in which None leaves a column out."""
    row = {name: value for name, value in {**ROWS[0], **changes}.items() if value is not None}
    write(folder / "a.jsonl", [row])


def rows_with(folder, **columns):
    return written(folder / "a.parquet", **{**PLAIN, **columns})


def hide(folder, name):
    rows_with(folder)
    (folder / name).mkdir()


def touch(folder, name):
    folder.mkdir()
    (folder / name).touch()


def cut_short(folder):
    file = rows_with(folder)
    file.write_bytes(file.read_bytes()[:-1])


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
    "cut short": cut_short,
    "lines without type": lambda folder: lines(folder, type=None),
    "contradicting": lambda folder: [
        rows_with(folder / name, sequence=pa.array([value])) for name, value in [("a", 1), ("b", "1")]
    ],
}


def command(place, log):
    check_log(str(log), "local[2]", None)


def command_of_streams(place, log):
    form: Any = "json" if any(log.rglob("*.jsonl")) else "parquet"
    check_source(str(log), form, "local[2]", {}, AS_JSON)
    where = {"store": place.store, "table": place.table, "out": place.out, "query": "q"}
    df, checkpoint = open_source(place.spark, str(log), form), str(place.folder / "checkpoint")
    run_stream(df, place.app, **where, checkpoint=checkpoint, trigger="available-now").awaitTermination()


def batch(place, log):
    place.run(log)


OFTEN_IN_STREAMS = {"Delta", "lines without type", "contradicting", "floats"}


@pytest.mark.parametrize(
    ("door", "make"),
    [
        pytest.param(
            door,
            make,
            marks=pytest.mark.thorough if door is command_of_streams and what not in OFTEN_IN_STREAMS else [],
            id=f"{door.__name__}-{what}",
        )
        for door, makes in [
            (command, ON_DISK | {"nothing": lambda folder: touch(folder, "a.jsonl")}),
            (batch, ON_DISK | COLUMNS_AMISS | BOTH),
            (command_of_streams, ON_DISK | COLUMNS_AMISS | BOTH),
        ]
        for what, make in makes.items()
    ],
)
def test_what_is_no_log_is_refused_at_each_door_before_the_ledger(place, door, make):
    make(place.folder / "log")
    with pytest.raises(LogError):
        door(place, place.folder / "log")
    assert not Path(place.out).exists()
    assert door is not batch or not (place.folder / "store.db").exists()
    assert place.batches() == []
