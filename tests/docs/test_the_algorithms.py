"""What docs/algorithms.md shows is run as it stands."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from runtime.algorithms.outbox.entity import MAX_OUTBOX_BYTES
from runtime.storage.limits import MAX_STATE_BYTES
from tests.unit.runtime.algorithms.world import ALGORITHMS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "algorithms.md").read_text()


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


def test_its_example_of_documents_runs(tmp_path):
    assert run(EXAMPLES[1], tmp_path) == ["Hit b'Well done!'", "processed"]


def test_its_example_of_deliveries_runs(tmp_path):
    assert run(EXAMPLES[2], tmp_path) == ["Dear customer!", "sent True", "filtered True"]


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
    assert f"{MAX_STATE_BYTES // 1024} KiB and" in PAGE
    assert f"{MAX_OUTBOX_BYTES // 1024} KiB" in PAGE


def test_it_names_every_algorithm():
    assert all(f"| `{algorithm}` |" in PAGE for algorithm in ALGORITHMS)
