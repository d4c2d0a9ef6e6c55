"""What cannot be read as a log is refused in a sentence that says why."""

import pytest

from runtime.errors import LogError, UsageError
from tests.support.logs import fire, start, write_lines
from tests.support.outcomes import by_status


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
    log = place.spark.sql(
        "select 'a' as message_id, 'Other' as type, '{}' as body, named_struct('m', map('k', 1)) as extra"
    )
    assert by_status(place.run(log)) == {("-", "dead_letter", "unknown_type"): 1}


def test_msgpack_bodies_need_a_business_id(place):
    log = place.spark.createDataFrame(
        [("a", "FireAt", bytearray(b"x"))], "message_id string, type string, body binary"
    )
    with pytest.raises(LogError, match="needs a column business_id"):
        place.run(log)
