"""What a scheduler sees of dead letters: the exit code, and a batch that is held back."""

import json
import sqlite3
from contextlib import closing

import pytest

from tests.integration.cli.folder import Folder

ON_STORE = ["--store", "sqlite:///store.db"]
RUN = [
    "run",
    "--app",
    "bank:app",
    "--messages",
    "log.jsonl",
    "--out",
    "outcomes",
    "--master",
    "local[2]",
    *ON_STORE,
]


@pytest.fixture(scope="module")
def place(workplace):
    Folder.make(workplace.path)  # with three dead letters in thirteen deliveries
    return workplace


def batches(place, table):
    done = place.consistent("batches", *ON_STORE, "--table", table, "--json")
    return {batch["batch_id"]: batch["status"] for batch in json.loads(done.stdout)["batches"]}


@pytest.mark.thorough
def test_more_than_the_limit_end_with_another_exit_code(place):
    done = place.consistent(*RUN, "--table", "first", "--batch-id", "b", "--max-dead-letters", "2")

    assert done.returncode == 3, done.stderr
    assert "more than --max-dead-letters 2: the exit code is 3" in done.stderr
    assert batches(place, "first") == {"b": "published"}
    # ... also when it is looked at again, with a share of all
    assert (
        place.consistent(*RUN, "--table", "first", "--batch-id", "b", "--max-dead-letters", "23%").returncode
        == 3
    )
    again = place.consistent(*RUN, "--table", "first", "--batch-id", "b", "--max-dead-letters", "23.1%")
    assert (again.returncode, "the exit code is 0" in again.stdout) == (0, True)


@pytest.mark.thorough
def test_a_strict_batch_is_held_back_until_more_are_allowed(place):
    strict = [*RUN, "--table", "second", "--batch-id", "s", "--strict", "--max-dead-letters"]

    held_back = place.consistent(*strict, "2")
    left_out = place.consistent("outcomes", "--out", "outcomes")
    seen = place.consistent("outcomes", "--out", "outcomes", "--batch-id", "s", "--status", "dead_letter")

    assert held_back.returncode == 3, held_back.stderr
    assert "Batch s is held back: 3 of its deliveries are dead letters, more than 2." in held_back.stderr
    assert batches(place, "second") == {"s": "started"}
    assert "ValueError: -5 is no deposit" in seen.stdout
    assert "is not published" in seen.stderr
    assert "--batch-id s" in left_out.stderr
    # ... and published then
    released = place.consistent(*strict, "3")
    assert released.returncode == 0, released.stderr
    assert batches(place, "second") == {"s": "published"}
    assert "held back" not in place.consistent("outcomes", "--out", "outcomes").stderr


@pytest.mark.thorough
def test_the_outputs_of_a_redrive_are_published_and_then_all_others(place):
    run, on_table = [*RUN, "--table", "third"], [*ON_STORE, "--table", "third"]
    assert place.consistent(*run, "--batch-id", "t").returncode == 0
    place.consistent("letters", *on_table, "--reason", "handler_error", "--export", "mended.jsonl")
    mended = place.path / "mended.jsonl"
    mended.write_text(mended.read_text().replace("-5", "5"))

    def ids():
        with closing(sqlite3.connect(place.path / "published.db")) as target:
            return [row[0] for row in target.execute("SELECT batch_id FROM Credited ORDER BY rowid")]

    to = "sqlite:///published.db"
    redrive = ["letters", "redrive", *run[1:3], *run[5:], "--edit", "mended.jsonl"]
    done = place.consistent(*redrive, "--batch-id", "r", "--publish", to)
    assert (done.returncode, ids()) == (0, ["r"]), done.stderr
    rest = place.consistent("publish", *on_table, "--to", to)

    assert (rest.returncode, ids()) == (0, ["r", *["t"] * 9]), rest.stderr
