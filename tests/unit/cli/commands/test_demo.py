"""`consistent demo` removes the folder of an earlier demo only; `--log-only` writes a log."""

import json
from datetime import UTC, datetime

import pyarrow.parquet as pq
import pytest

from runtime.cli.commands.demo import make_folder
from runtime.cli.failures import NotPossibleError
from runtime.spark.logs.read import write_log


def test_the_folder_of_an_earlier_demo_is_made_anew(tmp_path):
    path = tmp_path / "demo-output"
    make_folder(path)
    (path / "log.parquet").write_text("old")

    make_folder(path)

    assert [each.name for each in path.iterdir()] == [".made-by-consistent-demo"]


def test_a_folder_that_no_demo_made_is_left_alone(tmp_path):
    path = tmp_path / "demo-output"
    path.mkdir()
    (path / "thesis.txt").write_text("the only copy")

    with pytest.raises(NotPossibleError, match="was not created by the demo"):
        make_folder(path)

    assert (path / "thesis.txt").read_text() == "the only copy"


def test_a_link_to_the_folder_of_a_demo_is_left_alone(tmp_path):
    make_folder(tmp_path / "elsewhere")
    (tmp_path / "demo-output").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(NotPossibleError, match="was not created by the demo"):
        make_folder(tmp_path / "demo-output")

    assert (tmp_path / "elsewhere" / ".made-by-consistent-demo").exists()


SHOOTING_RANGE = ["demo", "--games", "3", "--messages", "40"]


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("name", ["log.jsonl", "log.json", "log.parquet", "log"])
def test_duplicates_come_on_top_of_the_messages(consistent, tmp_path, name):
    said = consistent(*SHOOTING_RANGE, "--duplicates", "0.25", "--log-only", name, "--json")

    assert said.code == 0
    assert said.document == {"out": name, "deliveries": 50, "messages": 40, "duplicates": 10, "games": 3}
    path = tmp_path / name
    rows = lines(path) if "json" in name else pq.read_table(path).to_pylist()
    assert len(rows) == 50
    assert len({row["message_id"] for row in rows}) == 40
    assert len({json.loads(row["body"])["game_id"] for row in rows}) == 3


def test_the_same_seed_gives_the_same_log(consistent, tmp_path):
    for name, seed in (("a.jsonl", "5"), ("b.jsonl", "5"), ("c.jsonl", "6")):
        consistent(*SHOOTING_RANGE, "--shuffle", "--seed", seed, "--log-only", name)

    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()
    assert (tmp_path / "a.jsonl").read_bytes() != (tmp_path / "c.jsonl").read_bytes()


def test_a_log_that_could_not_be_finished_leaves_no_file(tmp_path):
    def rows():
        yield {"message_id": "m1", "type": "FireAt", "body": "{}"}
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        write_log(rows(), tmp_path / "log.jsonl")

    assert list(tmp_path.iterdir()) == []


def test_all_columns_of_a_log_can_be_written(tmp_path):
    row = {
        "message_id": "m1",
        "type": "FireAt",
        "body": "{}",
        "business_id": "1",
        "sequence": 7,
        "enqueued_at": datetime(2026, 1, 1, tzinfo=UTC),
        "headers": {"trace": "t"},
    }

    write_log([row], tmp_path / "log.parquet")

    (found,) = pq.read_table(tmp_path / "log.parquet").to_pylist()
    assert {**found, "headers": dict(found["headers"])} == row
