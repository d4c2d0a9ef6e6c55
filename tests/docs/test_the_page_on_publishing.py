"""The commands of docs/publishing.md are run as they stand, on a batch of games."""

from __future__ import annotations

import re
import shlex
import sqlite3
import sys
from collections import Counter
from contextlib import closing

import pytest

from runtime.cli import main
from tests.docs.pages import text
from tests.publishing.cases import records
from tests.publishing.servers import http_receiver, kafka_brokers
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
    for name, content in re.findall(r"<!-- file: (\S+) -->\n```python\n(.*?)```", PAGE, re.DOTALL):
        (tmp_path / name).write_text(content)
    monkeypatch.setattr(sys, "path", list(sys.path))
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

    ends = ("is published to sqlite:///", "is published to post:send", "There are no dead letters")
    assert all(any(end in each for end in ends) for each in said if each)
    assert sum(each.count("Hit") for each in said) == 24
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


@pytest.mark.thorough
def test_its_command_publishes_to_kafka(run):
    (command,) = commands(": kafka")

    with kafka_brokers() as brokers:
        run(command.replace("broker:9092", brokers))
        found = Counter([*records(brokers, "hits"), *records(brokers, "Missed")])

    assert found == Counter(f"g{game}-{number}" for game in range(6) for number in range(6))


def test_its_program_runs(run, capsys):
    (program,) = re.findall(r"<!-- run: python -->\n```python\n(.*?)```", PAGE, re.DOTALL)

    exec(program, {})

    assert "36 outputs in 1 slices" in capsys.readouterr().out
