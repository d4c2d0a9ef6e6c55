"""The commands of docs/operations.md are run as they stand, on the raffle of the README."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from eventstore import connect, drive
from runtime import Envelope, Output, Processor
from runtime.cli import main
from tests.docs.pages import text

_FILE = re.compile(r"<!-- file: (\S+) -->\n```\w*\n(.*?)```", re.DOTALL)
_COMMANDS = re.compile(r"<!-- run -->\n```\n(.*?)```", re.DOTALL)


async def publish(_: Output) -> None:
    """Publish nothing."""


@pytest.fixture
def raffle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give a working directory with the raffle of the README, played through without Spark."""
    files = dict(_FILE.findall(text("README.md")))
    module: dict[str, object] = {"__name__": "raffle_of_the_page"}
    exec(files["raffle.py"], module)

    async def play() -> None:
        async with connect(f"sqlite:///{tmp_path}/raffle.db") as store:
            processor = Processor(module["app"], await store.table("raffle"), publish)  # type: ignore[arg-type] # the App
            for line in files["raffle.jsonl"].splitlines():
                row = json.loads(line)
                await processor.process(
                    Envelope.of(
                        row["message_id"], row["type"], json.dumps(row["body"]), sequence=row["sequence"]
                    )
                )

    drive(play())
    (tmp_path / "outcomes").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_its_commands_do_what_it_says(raffle, capsys):
    lines = [line for block in _COMMANDS.findall(text("docs/operations.md")) for line in block.splitlines()]
    assert [shlex.split(line)[1] for line in lines] == ["export", "import", "forget", "forget"]

    said = []
    for line in lines:
        with pytest.raises(SystemExit) as ended:
            main(shlex.split(line)[1:])
        assert not ended.value.code, capsys.readouterr().err
        said.append(capsys.readouterr())

    assert json.loads((raffle / "raffle-export" / "manifest.json").read_text())["rows"] == 1
    assert "Imported 1 row of raffle into raffle" in said[1].out
    assert "raffle-export/rows-00000.parquet" in said[2].out
    assert "refuses all messages for spring" in said[3].err
