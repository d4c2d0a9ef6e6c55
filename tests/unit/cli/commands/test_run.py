"""What is typed for `consistent run` and `consistent stream` reaches the batch."""

import base64
from contextlib import contextmanager
from datetime import timedelta
from types import SimpleNamespace

import pytest

from eventstore import Operation
from runtime import LogError
from runtime.batch_options import TablePlace
from runtime.cli import options as option_groups
from runtime.ledger.settings import KEY_BYTES, LEDGER, OF_TABLE
from runtime.messages.sizes import MessageLimits
from runtime.spark import batch
from tests.unit.cli.stores import TABLE, on_store

REQUIRED = [
    "run", "--app", "samples.shooting_range:app", "--messages", "s3a://shelf/log.jsonl",
    "--store", "sqlite:///store.db", "--table", "games", "--out", "out",
]  # fmt: skip


@pytest.fixture
def begun(monkeypatch):
    """Begin no batch and start no Spark, and keep what was asked for."""
    asked = SimpleNamespace()

    class Batch:
        def __init__(self, *given):
            _, _, asked.store, asked.table, asked.out, asked.options = given

        def run(self, messages, batch_id):
            asked.messages, asked.batch_id = messages, batch_id
            raise LogError("That is far enough.")

    @contextmanager
    def working(master, log_file, **_):
        asked.master, asked.log_file = master, log_file
        yield None, SimpleNamespace(step=lambda _: None)

    monkeypatch.setattr(batch, "Batch", Batch)
    monkeypatch.setattr(option_groups, "working", working)
    return asked


def test_all_options(consistent, begun):
    consistent(
        *REQUIRED, "--cascade", "--batch-id", "b1", "--format", "json", "--source", "north", "--late", "process",
        "--on-error", "stop-stream", "--max-rounds", "7", "--partitions", "3", "--master", "local[1]",
        "--log-file", "spark.log", "--guard",
    )  # fmt: skip

    assert begun.batch_id == "b1"
    assert (begun.master, str(begun.log_file)) == ("local[1]", "spark.log")
    options = begun.options
    assert (options.cascade, options.late, options.on_error) == (True, "process", "stop-stream")
    assert options.guard
    assert (options.source, options.log_format, options.partitions, options.max_rounds) == (
        "north",
        "json",
        3,
        7,
    )


def test_limits_of_messages_and_of_handlers(consistent, begun):
    consistent(*REQUIRED)
    usual = begun.options
    consistent(
        *REQUIRED, "--max-line", "5MiB", "--max-body", "4MiB", "--max-headers", "1KiB", "--max-published", "7",
        "--max-published-bytes", "9", "--max-error", "11", "--max-depth", "13", "--max-outputs", "15",
        "--handler-timeout", "5m", "--worker-memory", "3GiB", "--keep-large", "large",
    )  # fmt: skip

    assert (usual.limits, usual.handler_timeout, usual.worker_memory, usual.max_outputs) == (
        MessageLimits(),
        timedelta(seconds=30),
        2**31,
        1000,
    )
    options = begun.options
    assert options.limits == MessageLimits(5 * 2**20, 4 * 2**20, 2**10, 7, 9, 11, 13)
    assert (options.handler_timeout, options.worker_memory) == (timedelta(minutes=5), 3 * 2**30)
    assert (options.max_outputs, options.keep_large) == (15, "large")


def test_the_algorithm_and_where_its_store_is(consistent, begun, tmp_path):
    consistent(*REQUIRED, "--algorithm", "tokens", "--auxiliary-table", "tokens")
    assert begun.options.algorithm == "tokens"
    assert begun.options.token_store == TablePlace(f"sqlite:///{tmp_path}/store.db", "tokens")
    assert begun.options.deduplication_store is None

    consistent(*REQUIRED, "--algorithm", "deduplication-store", "--auxiliary-store", "sqlite:///ids.db")
    assert begun.options.deduplication_store == TablePlace(f"sqlite:///{tmp_path}/ids.db", "games")
    assert begun.options.token_store is None

    consistent(*REQUIRED, "--algorithm", "tokens", "--auxiliary-store", "sqlite:///store.db")
    assert begun.options.token_store is None, "that is the table of the states"


def test_the_id_that_is_printed_is_the_one_that_is_begun(consistent, begun):
    said = consistent(*REQUIRED)

    assert said.err.startswith(f"Batch {begun.batch_id}: ")


KEY = bytes(range(48, 48 + KEY_BYTES))
PLACE = ["--store", "sqlite:///store.db", "--table", TABLE]


COMMANDS = [
    ["batches"],
    ["show"],
    ["show", "--stats"],
    ["check"],
    ["letters"],
    ["show", "--stats"],
    ["truncate", "--policy", "list"],
    ["export", "--to", "export"],
    ["show", "LeaderBoard", "7d444840-9dc0-11d1-b245-5ffdce74fad2"],
    [
        "sql",
        "select * from state union all by name select * from versions union all by name select * from batches",
    ],
]


async def key_draws(table):
    await table.transact(LEDGER, [Operation.insert(OF_TABLE, {"DrawKey": KEY})])


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_no_command_shows_it(consistent, store, tmp_path, form):
    on_store(f"sqlite:///{tmp_path}/store.db", key_draws)

    for command in COMMANDS:
        said = consistent(*command, *PLACE, *form)
        assert said.code == 0
        for shown in (KEY.decode(), KEY.hex(), base64.b64encode(KEY).decode(), repr(KEY)[2:-1]):
            assert shown not in said.out + said.err
    assert KEY.decode() not in (tmp_path / "export" / "manifest.json").read_text()
