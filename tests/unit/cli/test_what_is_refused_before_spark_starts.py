"""What cannot be done is said before Spark starts, and nothing is made for it."""

import sqlite3

import pytest

from runtime.cli import options as option_groups
from runtime.ledger.ledger import Ledger
from tests.unit.cli.stores import NOW, on_store

RUN = ["run", "--app", "samples.shooting_range:app", "--messages", "log.jsonl"]
LOOKS = [
    ["streams"],
    ["batches"],
    ["show", "ShootingRange", "g1"],
    ["stats"],
    ["truncate", "--older-than", "7d"],
    ["truncate", "--older-than", "7d", "--dry-run"],
    ["verify", *RUN[1:]],
]


@pytest.fixture(autouse=True)
def _no_spark(monkeypatch, tmp_path):
    def started(*_, **__):
        pytest.fail("Spark would be started")

    (tmp_path / "log.jsonl").write_text("{}")
    monkeypatch.setattr(option_groups, "working", started)


def tables(path):
    with sqlite3.connect(path) as file:
        return {name for (name,) in file.execute("select name from sqlite_master where type = 'table'")}


@pytest.mark.parametrize("command", LOOKS)
def test_looking_at_a_table_never_makes_it(consistent, store, tmp_path, command):
    before = tables(tmp_path / "store.db")

    said = consistent(*command, "--store", "sqlite:///store.db", "--table", "gmes")

    assert (said.code, said.out) == (1, "")
    assert said.err == "Error: There is no table gmes in sqlite:///store.db.\n"
    assert tables(tmp_path / "store.db") == before


@pytest.mark.parametrize("command", LOOKS)
def test_looking_into_a_store_never_makes_it(consistent, tmp_path, command):
    said = consistent(*command, "--store", "sqlite:///stor.db", "--table", "games")

    assert (said.code, said.out) == (1, "")
    assert said.err.startswith(f"Error: There is no store at {tmp_path}/stor.db")
    assert not (tmp_path / "stor.db").exists()


@pytest.mark.parametrize(
    ("options", "code", "sentence"),
    [
        (["--table", "g"], 2, "The table name 'g' cannot be used: it must be 3 to 63"),
        (
            ["--store", "env:NOT_SET_HERE"],
            2,
            "The environment variable NOT_SET_HERE that the store url names is not",
        ),
        (["--store", "memory:"], 2, "A memory: store is seen by one process only"),
        (["--messages", "lgo.jsonl"], 1, "There is no log at lgo.jsonl."),
        (["--out", "log.jsonl"], 1, "Outcomes cannot be written to log.jsonl: "),
        (["--out", "log.jsonl/deeper"], 1, "Outcomes cannot be written to log.jsonl/deeper: "),
        (["--batch-id", "a/b"], 1, "The batch id 'a/b' is not usable"),
        (["--batch-id", "given-up"], 1, "Batch given-up was abandoned"),
        (["--batch-id", "begun", "--out", "elsewhere"], 1, "Batch begun has outcomes in "),
        (["--algorithm", "outbox"], 1, "The table was processed with the algorithm state-based"),
        (["--table", "gmes", "--must-exist"], 1, "There is no table gmes in sqlite:///store.db."),
        (
            ["--store", "sqlite:///stor.db", "--must-exist"],
            1,
            "There is no table games in sqlite:///stor.db.",
        ),
    ],
)
def test_a_batch_that_cannot_begin(consistent, store, tmp_path, options, code, sentence):
    async def begin(table):
        ledger = Ledger(table, NOW)
        await ledger.begin("given-up", "input", str(tmp_path / "out"))
        await ledger.abandon("given-up")
        await ledger.commit_round(await ledger.begin("begun", "input", str(tmp_path / "out")), 0, {}, 0)

    on_store(store, begin)
    before = tables(tmp_path / "store.db")

    command = RUN[: RUN.index("--messages")] if "--messages" in options else RUN
    said = consistent(*command, "--store", "sqlite:///store.db", "--table", "games", "--out", "out", *options)

    assert said.err.startswith(f"Error: {sentence}"), said.err
    assert (said.code, said.out) == (code, "")
    assert tables(tmp_path / "store.db") == before
    assert not (tmp_path / "stor.db").exists()


def test_a_sweep_of_a_table_of_another_algorithm(consistent, store):
    on_store(store, lambda table: Ledger(table, NOW).begin("b1", "some input", "out"))

    said = consistent(
        *["sweep", "--app", "samples.shooting_range:app", "--algorithm", "outbox", "--out", "out"],
        *["--store", "sqlite:///store.db", "--table", "games"],
    )

    assert (said.code, said.out) == (1, "")
    assert said.err.startswith("Error: The table was processed with the algorithm state-based (batch b1)")


@pytest.mark.parametrize("command", [["stats"], ["window"]])
def test_what_is_no_master(consistent, store, command):
    said = consistent(*command, "--master", "lokal", "--store", "sqlite:///store.db", "--table", "games")

    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("Error: 'lokal' is no master of Spark: write local[*]")
