"""The commands of docs/publishing.md are run as they stand, on a batch of games."""

from __future__ import annotations

import re
import shlex
import sqlite3
from contextlib import closing

import pytest

from runtime.cli import main
from tests.docs.pages import text
from tests.publishing.servers import http_receiver
from tests.support.done_batches import games, make_batch

PAGE = text("docs/publishing.md")
BATCH = "20260301T120000-3f9a1c"


def commands(kind: str = "") -> list[str]:
    found = re.findall(rf"<!-- run{kind} -->\n```\n(.*?)```", PAGE, re.DOTALL)
    return [line for block in found for line in block.splitlines()]


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Run a line of the page in a folder with the batch that it names."""
    monkeypatch.chdir(tmp_path)
    make_batch("sqlite:///store.db", tmp_path / "outcomes", games(6, 6), batch_id=BATCH)

    def run(line: str) -> str:
        first, *words = shlex.split(line)
        if first == "export":
            name, _, value = words[0].partition("=")
            monkeypatch.setenv(name, value)
            return ""
        with pytest.raises(SystemExit) as ended:
            main(words)
        said = capsys.readouterr()
        assert not ended.value.code, said.err
        return str(said.out)

    return run


def test_its_commands_publish_to_a_file(run, tmp_path):
    said = [run(line) for line in commands()]

    assert all("is out at sqlite:///" in each for each in said if each)
    with closing(sqlite3.connect(tmp_path / "published.db")) as file:
        assert file.execute("SELECT count(*) FROM hits").fetchone() == (24,)


def test_its_command_publishes_over_http(run, monkeypatch):
    monkeypatch.setenv("TOKEN", "secret")
    (command,) = commands(": http")

    with http_receiver() as receiver:
        run(command.replace("https://example.org/events", f"{receiver.url}/k"))
        effects = receiver.counts()["effects"].values()

    assert len(effects) == 36
    assert {each["Authorization"] for each in effects} == {"secret"}
