"""`consistent demo` removes only the folder of an earlier demo; `--log-only` writes a log."""

import json
from datetime import UTC, datetime

import pyarrow.parquet as pq
import pytest

from runtime.cli.commands.demo import make_folder
from runtime.cli.failures import NotPossibleError
from runtime.spark.logs.read import write_log

DEMO = ["demo", "--games", "3", "--messages", "40"]


def test_the_folder_of_an_earlier_demo_is_recreated_and_others_are_left_alone(tmp_path):
    made, other, link = (tmp_path / name for name in ("demo-output", "thesis", "link"))
    make_folder(made)
    (made / "log.parquet").write_text("old")
    make_folder(made)
    assert [each.name for each in made.iterdir()] == [".made-by-consistent-demo"]

    other.mkdir()
    (other / "thesis.txt").write_text("the only copy")
    link.symlink_to(made)
    for path in (other, link):
        with pytest.raises(NotPossibleError, match="was not created by the demo"):
            make_folder(path)
    assert (other / "thesis.txt").read_text() == "the only copy"
    assert (made / ".made-by-consistent-demo").exists()


@pytest.mark.parametrize("name", ["log.jsonl", "log.json", "log.parquet", "log"])
def test_a_log_has_duplicates_on_top_of_its_messages_and_is_the_same_for_a_seed(consistent, tmp_path, name):
    said = consistent(*DEMO, "--duplicates", "0.25", "--log-only", name, "--json")

    assert said.code == 0
    assert said.document == {"out": name, "deliveries": 50, "messages": 40, "duplicates": 10, "games": 3}

    def rows(file):
        path = tmp_path / file
        if "json" in name:
            return [json.loads(line) for line in path.read_text().splitlines()]
        return pq.read_table(path).to_pylist()

    assert len(rows(name)) == 50
    assert len({row["message_id"] for row in rows(name)}) == 40
    assert len({json.loads(row["body"])["game_id"] for row in rows(name)}) == 3
    for seed in "556":
        consistent(*DEMO, "--shuffle", "--seed", seed, "--log-only", f"{len([*tmp_path.iterdir()])}-{name}")
    first, same, different = (rows(f"{number}-{name}") for number in (1, 2, 3))
    assert first == same != different


def test_an_unfinished_log_leaves_no_file(tmp_path):
    def rows():
        yield {"message_id": "m1", "type": "FireAt", "body": "{}"}
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        write_log(rows(), tmp_path / "log.jsonl")

    assert list(tmp_path.iterdir()) == []


def test_a_log_may_have_all_columns(tmp_path):
    row = {
        "message_id": "m1", "type": "FireAt", "body": "{}", "business_id": "1", "sequence": 7,
        "enqueued_at": datetime(2026, 1, 1, tzinfo=UTC), "headers": {"trace": "t"},
    }  # fmt: skip

    write_log([row], tmp_path / "log.parquet")

    (found,) = pq.read_table(tmp_path / "log.parquet").to_pylist()
    assert {**found, "headers": dict(found["headers"])} == row
