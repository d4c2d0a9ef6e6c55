"""What docs/algorithms.md shows is run as it stands."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from uuid import NAMESPACE_OID, uuid5

import pytest

from benchmarks.algorithms.costs import AGAIN, HISTORY, NEW
from runtime import Envelope
from runtime.algorithms.outbox.entity import MAX_OUTBOX_BYTES
from runtime.publishing import DeliverySettings
from runtime.storage.limits import MAX_STATE_BYTES, MAX_TAIL_BYTES
from tests.unit.runtime.algorithms.batches import Batch
from tests.unit.runtime.algorithms.world import ALGORITHMS, World

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "algorithms.md").read_text()
TEXT = " ".join(PAGE.split())

COMMANDS = re.findall(r"```\n(consistent .*?)```", PAGE, re.DOTALL)
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def run(code: str, folder: Path) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{code}"],
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def with_algorithm(example: str, algorithm: str) -> str:
    """Return the example of a processor with another algorithm, and the store that it uses, if any."""
    (store,) = re.findall(r"^ *token_store=.*\n", example, re.MULTILINE)
    stores = {"tokens": store, "deduplication-store": store.replace("token_store", "deduplication_store")}
    return example.replace('algorithm="tokens"', f'algorithm="{algorithm}"').replace(
        store, stores.get(algorithm, "")
    )


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_its_first_example_runs_with_each_algorithm(algorithm, tmp_path):
    lines = run(with_algorithm(EXAMPLES[0], algorithm), tmp_path)

    assert lines[0].startswith("Hit ")
    others = [line for line in lines if not line.startswith("Hit ")]
    assert others == ["processed", "duplicate", "0 messages were left unfinished"]


def test_its_example_of_deliveries_runs(tmp_path):
    assert run(EXAMPLES[1], tmp_path) == ["Dear customer!", "sent True", "filtered True"]


@pytest.mark.thorough
def test_its_commands_run_one_after_another(workplace):
    lines = [line for block in COMMANDS for line in block.replace("\\\n", "").splitlines()]
    commands = [shlex.split(line) for line in lines]
    assert {command[0] for command in commands} == {"consistent"}

    ended = [workplace.consistent(*arguments) for _, *arguments in commands]

    assert [each.returncode for each in ended] == [0] * len(commands), ended
    said = {command[1]: each.stdout for command, each in zip(commands, ended, strict=True)}
    assert "Nothing was left unfinished." in said["sweep"]
    assert "0 messages would be forgotten" in said["evict"]
    assert "Wrote 440 deliveries with tokens" in said["tokens"]
    assert "Live tokens: 0" in said["stats"]


def test_its_limits_are_those_of_the_code():
    state, outbox = MAX_STATE_BYTES // 1024, MAX_OUTBOX_BYTES // 1024

    assert f"{state} KiB, and {outbox} KiB for all entries of an entity" in TEXT
    assert f"When they take more than {outbox} KiB" in TEXT
    assert f"The tail holds the newest versions, up to {MAX_TAIL_BYTES // 1024} KiB" in TEXT
    assert f"at least {HISTORY.stop + len(NEW) - AGAIN} newer ones in its game" in TEXT


@pytest.mark.parametrize(
    ("algorithm", "sentence"),
    [
        ("outbox", "512 KiB, about {:,} messages with a small output each"),
        ("tokens", "each, {:,} with tokens."),
    ],
)
def test_as_many_messages_fit_a_round_as_it_says(algorithm, sentence):
    game = "7d444840-9dc0-11d1-b245-5ffdce74fad2"
    world = World(algorithm)
    shots = [
        Envelope.of(f"{uuid5(NAMESPACE_OID, str(n))}", "FireAt", f'{{"game_id": "{game}", "position": 1}}')
        for n in range(2500)
    ]

    outcomes = Batch(world, "20260101T000000-abc123").first_pass(*shots)

    fitting = sum(outcome.status == "processed" for outcome in outcomes)
    assert sentence.format(round(fitting, -2)) in TEXT


def test_a_lock_expires_and_a_key_is_kept_as_long_as_it_says():
    settings = DeliverySettings()

    assert settings.lock_limit == timedelta(minutes=2)
    assert "A lock expires after two minutes" in TEXT
    assert f"| {settings.lock_limit // timedelta(milliseconds=1)} |" in TEXT
    assert f"| {settings.default_ttl // timedelta(seconds=1)} |" in TEXT


def test_it_names_every_algorithm():
    assert all(f"| `{algorithm}` |" in PAGE for algorithm in ALGORITHMS)
