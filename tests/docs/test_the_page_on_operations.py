"""The commands of docs/operations.md on exports and forgetting are run as they stand, on the raffle of the README."""

from __future__ import annotations

import json
import re
import shlex

import pytest

from eventstore import connect, drive
from runtime import Envelope, Output, Processor
from tests.docs.pages import text
from tests.plugins.spark import Workplace

_FILE = re.compile(r"<!-- file: (\S+) -->\n```\w*\n(.*?)```", re.DOTALL)
_COMMANDS = re.compile(r"<!-- run -->\n```\n(.*?)```", re.DOTALL)


async def publish(_: Output) -> None:
    """Publish nothing."""


@pytest.fixture
def raffle(workplace: Workplace) -> Workplace:
    """Give a folder with the raffle of the README, played through message by message."""
    files = dict(_FILE.findall(text("README.md")))
    module: dict[str, object] = {"__name__": "raffle_of_the_page"}
    exec(files["raffle.py"], module)

    async def play() -> None:
        async with connect(f"sqlite:///{workplace.path}/raffle.db") as store:
            processor = Processor(module["app"], await store.table("raffle"), publish)  # type: ignore[arg-type] # the App
            for line in files["raffle.jsonl"].splitlines():
                row = json.loads(line)
                await processor.process(
                    Envelope.of(
                        row["message_id"], row["type"], json.dumps(row["body"]), sequence=row["sequence"]
                    )
                )

    drive(play())
    (workplace.path / "outcomes").mkdir()
    return workplace


@pytest.mark.thorough
def test_its_commands_do_what_it_says(raffle):
    page = text("docs/operations.md").partition("## Exporting what is cut")[2]
    lines = [line for block in _COMMANDS.findall(page) for line in block.splitlines()]
    names = ["truncate", "show", "export", "import", "forget", "forget"]
    assert [shlex.split(line)[1] for line in lines] == names

    said = [raffle.consistent(*shlex.split(line)[1:]) for line in lines]

    assert [each.returncode for each in said] == [0] * len(lines), said
    assert re.search(r"kept from +1\b", said[1].stdout)
    assert "m2" in said[1].stdout
    assert json.loads((raffle.path / "raffle-export" / "manifest.json").read_text())["rows"] >= 1
    assert " of raffle into raffle, with the digest" in said[3].stdout
    assert "raffle-export/rows-00000.parquet" in said[4].stdout
    assert "refuses all messages for spring" in said[5].stderr
