"""Options of `consistent run` reach the batch, and no command shows the key of draws."""

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
from tests.unit.cli.stores import ON_STORE, on_store

LOG = ["--messages", "s3a://shelf/log.jsonl"]
RUN = ["run", "--app", "samples.shooting_range:app", *LOG, "--out", "out", *ON_STORE]


@pytest.fixture
def begun(consistent, monkeypatch):
    """Return a function that runs a command without batch and Spark, and returns the arguments of the batch."""
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

    def begin(options=""):
        asked.said = consistent(*RUN, *options.split())
        return asked

    monkeypatch.setattr(batch, "Batch", Batch)
    monkeypatch.setattr(option_groups, "working", working)
    return begin


def test_all_options_reach_the_batch(begun):
    asked = begun()
    assert asked.said.err.startswith(f"Batch {asked.batch_id}: ")
    usual = asked.options
    assert (usual.limits, usual.handler_timeout) == (MessageLimits(), timedelta(seconds=30))
    assert (usual.worker_memory, usual.max_outputs) == (2**31, 1000)

    asked = begun(
        "--cascade --batch-id b1 --format json --source north --late process --on-error stop-stream --max-rounds 7 "
        "--partitions 3 --master local[1] --log-file spark.log --guard --max-line 5MiB --max-body 4MiB "
        "--max-headers 1KiB --max-published 7 --max-published-bytes 9 --max-error 11 --max-depth 13 --max-outputs 15 "
        "--handler-timeout 5m --worker-memory 3GiB --keep-large large"
    )
    options = asked.options
    assert (asked.batch_id, asked.master, str(asked.log_file)) == ("b1", "local[1]", "spark.log")
    assert asked.said.err.startswith("Batch b1: ")
    assert (options.cascade, options.late, options.on_error, options.guard) == (
        True,
        "process",
        "stop-stream",
        True,
    )
    assert (options.source, options.log_format, options.partitions) == ("north", "json", 3)
    assert options.limits == MessageLimits(5 * 2**20, 4 * 2**20, 2**10, 7, 9, 11, 13)
    assert (options.handler_timeout, options.worker_memory) == (timedelta(minutes=5), 3 * 2**30)
    assert (options.max_rounds, options.max_outputs, options.keep_large) == (7, 15, "large")


def test_the_auxiliary_store_reaches_its_algorithm(begun, tmp_path):
    tokens = begun("--algorithm tokens --auxiliary-table tokens").options
    assert tokens.algorithm == "tokens"
    assert tokens.token_store == TablePlace(f"sqlite:///{tmp_path}/store.db", "tokens")
    assert tokens.deduplication_store is None

    ids = begun("--algorithm deduplication-store --auxiliary-store sqlite:///ids.db").options
    assert ids.deduplication_store == TablePlace(f"sqlite:///{tmp_path}/ids.db", "games")
    assert ids.token_store is None

    same = begun("--algorithm tokens --auxiliary-store sqlite:///store.db").options
    assert same.token_store is None, "that is the table of the states"


KEY = bytes(range(48, 48 + KEY_BYTES))
ALL = "select * from state union all by name select * from versions union all by name select * from batches"
COMMANDS = [
    ["batches"],
    ["show"],
    ["show", "--stats"],
    ["show", "LeaderBoard", "7d444840-9dc0-11d1-b245-5ffdce74fad2"],
    ["check"],
    ["letters"],
    ["truncate", "--policy", "list"],
    ["export", "--to", "export"],
    ["sql", ALL],
]


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_no_command_shows_the_key_of_draws(consistent, store, tmp_path, form):
    insert = Operation.insert(OF_TABLE, {"DrawKey": KEY})
    on_store(f"sqlite:///{tmp_path}/store.db", lambda table: table.transact(LEDGER, [insert]))

    for command in COMMANDS:
        said = consistent(*command, *ON_STORE, *form)
        assert said.code == 0
        for shown in (KEY.decode(), KEY.hex(), base64.b64encode(KEY).decode(), repr(KEY)[2:-1]):
            assert shown not in said.out + said.err
    assert KEY.decode() not in (tmp_path / "export" / "manifest.json").read_text()
