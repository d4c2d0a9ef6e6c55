"""The columns of a log of Parquet are found without Spark as Spark finds them, or else are left to Spark."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import StructType

from runtime.spark.logs import read as reading
from runtime.spark.logs.read import _schema_of, find_on_disk, open_log

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
