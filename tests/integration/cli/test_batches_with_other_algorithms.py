"""Batches with an outbox, a deduplication store and tokens from the command line, and their refusals.

The commands run one after another, and each test looks at the results of some of them.
"""

import asyncio
import json
import shlex
import sys
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from eventstore import connect
from runtime import Envelope, Processor
from runtime.cli.checks import load_app
from tests.integration.cli.folder import Folder, deposit
from tests.plugins.spark import Workplace

pytestmark = pytest.mark.thorough
IDS = "--auxiliary-store sqlite:///ids.db --auxiliary-table seen"
OUTBOX = "--store sqlite:///outbox.db --table bank"
STORE = "--store sqlite:///store.db --table bank"
TOKENS = "--store sqlite:///tokens.db --table bank"


def run(algorithm: str, place: str, more: str = "", log: str = "log.jsonl") -> str:
    out = f"--messages {log} --out outcomes-{algorithm} --partitions 2"
    return f"run APP {place} --algorithm {algorithm} {out} --cascade --json SPARK {more}"


ISSUE = f"tokens APP {TOKENS} --messages log.jsonl --out with-tokens SPARK"
SWEEP = "--algorithm outbox --unfinished 0s --out swept --cascade --batch-id sweep --json"
COMMANDS = {
    "sweep": f"run APP {OUTBOX} {SWEEP} SPARK",
    "outbox": run("outbox", OUTBOX),
    "forget": f"truncate APP {OUTBOX} --algorithm outbox --older-than 0s --allow-young --yes",
    "outbox after it": run("outbox", OUTBOX),
    "outbox as state-based": f"run APP {OUTBOX} --messages log.jsonl --out x SPARK",
    "verify": f"verify APP {OUTBOX} --messages log.jsonl SPARK",
    "store": run("deduplication-store", STORE, IDS),
    "store elsewhere": run("deduplication-store", STORE),
    "store listed": f"batches {STORE} --json",
    "issue": ISSUE,
    "issue again": ISSUE,
    "tokens": run("tokens", TOKENS, log="with-tokens"),
    "tokens counted": f"show --stats {TOKENS} --json",
}


@pytest.fixture(scope="module")
def said(workplace: Workplace) -> dict[str, CompletedProcess[str]]:
    Folder.make(workplace.path)
    asyncio.run(_leave_an_output(workplace.path))
    words = {"APP": "--app bank:app", "SPARK": "--master local[2]"}
    ended = {}
    for name, command in COMMANDS.items():
        split = [part for word in shlex.split(command) for part in words.get(word, word).split()]
        ended[name] = workplace.consistent(*split)
    return ended


async def _leave_an_output(folder: Path) -> None:
    """Let a worker die before it has published the outputs of a message."""

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


def document(done: CompletedProcess[str]) -> Any:
    return json.loads(done.stdout[done.stdout.index("{") :])


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("sweep", {"duplicate": 1, "processed": 1, "outputs": 1}),  # publishes what the dead worker has left
        ("outbox", {"processed": 16, "duplicate": 2, "dead_letter": 3, "outputs": 8}),
        ("store", {"processed": 18, "duplicate": 1, "dead_letter": 3, "outputs": 9}),
        ("tokens", {"processed": 18, "duplicate": 1, "dead_letter": 2, "outputs": 9}),
    ],
)
def test_each_algorithm_runs_a_batch(said, name, counts):
    assert said[name].returncode == 0, said[name].stderr
    assert document(said[name])["counts"] == counts


def test_a_message_with_a_deleted_id_is_processed_again(said):
    assert "18 ids were deleted. A later copy of such a message is" in said["forget"].stdout
    assert document(said["outbox after it"])["counts"]["processed"] == 18


@pytest.mark.parametrize(
    ("name", "code", "sentence"),
    [
        ("outbox as state-based", 1, "The table was processed with the algorithm outbox (batch "),
        ("verify", 2, "only state-based tables can be verified"),
        ("store elsewhere", 1, "deduplication-store in seen of sqlite:///"),
        ("issue again", 2, "already exists: remove it, or choose another --out."),
    ],
)
def test_another_algorithm_or_store_is_refused_in_one_sentence(said, name, code, sentence):
    (error,) = [line for line in said[name].stderr.splitlines() if line.startswith("Error: ")]

    assert (said[name].returncode, sentence in error) == (code, True), error
    assert "Traceback" not in said[name].stderr


def test_the_ledger_names_the_store_and_tokens_are_issued_and_used(said):
    (batch,) = document(said["store listed"])["batches"]
    assert batch["algorithm"].startswith("deduplication-store in seen of sqlite:////")
    assert batch["algorithm"].endswith("/ids.db")
    assert "Wrote 12 deliveries with tokens to " in said["issue"].stdout
    assert "Invalid rows: 1, " in said["issue"].stdout
    handlers = document(said["tokens counted"])["handlers"]
    assert [(each["handler"], each["unfinished"]) for each in handlers] == [("Account", 0), ("Mail", 0)]
