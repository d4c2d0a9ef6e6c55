"""A log is known by what it holds: as files on the disks of this machine, and as rows of Spark."""

import pytest

from runtime.spark.logs.read import Input, describe_input, open_log

ROWS = [("a", "FireAt", '{"game_id":1}', {"tenant": "x"}), ("b", "FireAt", "{}", None), ("c", "", "{}", {})]
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
    given = named(spark.createDataFrame(ROWS, SCHEMA))
    assert given == named(spark.createDataFrame(ROWS[::-1], SCHEMA).repartition(3))
    assert given.messages == 3
    assert given.name.startswith("checksum ")


@pytest.mark.thorough
@pytest.mark.parametrize("changed", [ROWS[:2], [*ROWS, ROWS[0]], [("d", *ROWS[0][1:]), *ROWS[1:]]])
def test_other_rows_are_another_log(spark, named, changed):
    assert named(spark.createDataFrame(ROWS, SCHEMA)) != named(spark.createDataFrame(changed, SCHEMA))


@pytest.mark.thorough
def test_files_that_spark_has_written_are_read_here_unless_they_were_changed_since(spark, named, tmp_path):
    # Given a file with Hadoop's checksums beside it
    spark.createDataFrame(ROWS, SCHEMA).coalesce(1).write.json(str(tmp_path / "log.jsonl"))
    (file,) = (tmp_path / "log.jsonl").glob("part-*")
    assert file.with_name(f".{file.name}.crc").exists()
    assert named(tmp_path / "log.jsonl").name.startswith("digest ")
