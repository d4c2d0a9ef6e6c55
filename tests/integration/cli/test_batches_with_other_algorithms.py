"""Batches with an outbox, a deduplication store and tokens from the command line, and what cannot be done with them.

The commands run one after another, and each test looks at what one said.
"""

import asyncio
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from eventstore import connect
from runtime import Envelope, Processor
from runtime.cli.checks import load_app
from tests.integration.cli.folder import Folder, deposit
from tests.plugins.spark import Workplace

APP = ["--app", "bank:app"]
SPARK = ["--master", "local[2]"]
ELSEWHERE = ["--auxiliary-store", "sqlite:///ids.db", "--auxiliary-table", "seen"]


@dataclass(frozen=True)
class Said:
    """What a command said, and its exit code."""

    code: int
    text: str

    @property
    def document(self) -> Any:
        return json.loads(self.text[self.text.index("{") :])

    @property
    def error(self) -> str:
        """The one sentence that it complained with."""
        assert "Traceback" not in self.text
        (sentence,) = [line for line in self.text.splitlines() if line.startswith("Error: ")]
        return sentence


def on(name: str) -> list[str]:
    return [*APP, "--store", f"sqlite:///{name}.db", "--table", "bank"]


def table(name: str) -> list[str]:
    return on(name)[2:]


def run(name: str, *more: str, log: str = "log.jsonl") -> list[str]:
    out = ["--messages", log, "--out", f"outcomes-{name}", "--partitions", "2"]
    return ["run", *on(name), "--algorithm", name, *out, "--cascade", "--json", *SPARK, *more]


SWEEP = ["run", *on("outbox"), "--algorithm", "outbox", "--unfinished", "0s", "--out", "swept", "--cascade"]
ISSUE = ["tokens", *on("tokens"), "--messages", "log.jsonl", "--out", "with-tokens", *SPARK]
FORGET = ["truncate", *on("outbox"), "--algorithm", "outbox", "--older-than", "0s", "--allow-young", "--yes"]
COMMANDS = {
    "sweep": [*SWEEP, "--batch-id", "sweep", "--json", *SPARK],
    "outbox": run("outbox"),
    "forget": FORGET,
    "outbox after it": run("outbox"),
    "outbox as state-based": ["run", *on("outbox"), "--messages", "log.jsonl", "--out", "x", *SPARK],
    "verify": ["verify", *on("outbox"), "--messages", "log.jsonl", *SPARK],
    "store": run("deduplication-store", *ELSEWHERE),
    "store elsewhere": run("deduplication-store"),
    "store listed": ["batches", *table("deduplication-store"), "--json"],
    "issue": ISSUE,
    "issue again": ISSUE,
    "tokens": run("tokens", log="with-tokens"),
    "tokens counted": ["show", "--stats", *table("tokens"), "--json"],
}


pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module")
def said(workplace: Workplace) -> dict[str, Said]:
    Folder.make(workplace.path)
    asyncio.run(_leave_something(workplace.path))
    ended = {name: workplace.consistent(*command) for name, command in COMMANDS.items()}
    return {name: Said(each.returncode, each.stderr + each.stdout) for name, each in ended.items()}


async def _leave_something(folder: Path) -> None:
    """Let a worker die before it has published what a message gives."""

    async def publish(_: object) -> None:
        raise ConnectionError("nobody listens")

    row = deposit(1, "a1", 1)
    async with connect(f"sqlite:///{folder}/outbox.db") as store:
        sys.path.insert(0, str(folder))
        try:
            app = load_app("bank:app")
        finally:
            sys.path.remove(str(folder))
            sys.modules.pop("bank", None)  # other tests have modules of this name
        processor = Processor(app, await store.table("bank"), publish, algorithm="outbox")
        with pytest.raises(ConnectionError):
            await processor.process(Envelope.of(row["message_id"], row["type"], row["body"]))


def test_a_sweep_publishes_and_handles_what_a_worker_has_left(said):
    document = said["sweep"].document
    assert document["batch_id"] == "sweep"
    assert document["counts"] == {"duplicate": 1, "processed": 1, "outputs": 1}


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("outbox", {"processed": 16, "duplicate": 2, "dead_letter": 3, "outputs": 8}),
        ("store", {"processed": 18, "duplicate": 1, "dead_letter": 3, "outputs": 9}),
        ("tokens", {"processed": 18, "duplicate": 1, "dead_letter": 2, "outputs": 9}),
    ],
)
def test_each_algorithm_runs_a_batch(said, name, counts):
    assert said[name].code == 0, said[name].text
    assert said[name].document["counts"] == counts


def test_what_was_forgotten_is_processed_again(said):
    assert "18 ids were deleted. A later copy of such a message is" in said["forget"].text
    assert said["outbox after it"].document["counts"]["processed"] == 18


def test_a_table_of_another_algorithm_is_refused(said):
    assert said["outbox as state-based"].code == 1
    assert "The table was processed with the algorithm outbox (batch " in said["outbox as state-based"].error
    assert said["verify"].code == 2
    assert "only state-based tables can be verified" in said["verify"].error


def test_a_store_elsewhere_than_before_is_refused(said):
    assert said["store elsewhere"].code == 1
    assert "deduplication-store in seen of sqlite:///" in said["store elsewhere"].error


def test_the_ledger_says_the_algorithm_and_where_its_store_is(said):
    (batch,) = said["store listed"].document["batches"]
    assert batch["algorithm"].startswith("deduplication-store in seen of sqlite:////")
    assert batch["algorithm"].endswith("/ids.db")


def test_tokens_are_issued_for_a_log_and_dead_letters_keep_theirs(said):
    assert "Wrote 12 deliveries with tokens to " in said["issue"].text
    assert "Invalid rows: 1, " in said["issue"].text
    assert said["issue again"].code == 2
    assert "already exists: remove it, or choose another --out." in said["issue again"].error
    document = said["tokens counted"].document
    assert [(each["handler"], each["unfinished"]) for each in document["handlers"]] == [
        ("Account", 0),
        ("Mail", 0),
    ]
