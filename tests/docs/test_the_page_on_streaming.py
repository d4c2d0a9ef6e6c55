"""What docs/streaming.md shows is run as it stands, and the sentences that it quotes are those of the code."""

from __future__ import annotations

import re
import shlex
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.docs.pages import text
from tests.plugins.spark import Workplace

PAGE = text("docs/streaming.md")
(COMMANDS,) = re.findall(r"<!-- run -->\n```\n(.*?)```", PAGE, re.DOTALL)
(PROGRAM,) = re.findall(r"<!-- run: python -->\n```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.thorough
def test_its_commands_and_its_program_run(workplace: Workplace, capsys: pytest.CaptureFixture[str]):
    (workplace.path / "incoming").mkdir()
    said = [workplace.consistent(*shlex.split(line)[1:]) for line in COMMANDS.splitlines()]

    assert [each.returncode for each in said] == [0] * len(said), said
    assert "shots-0: " in said[1].stderr
    assert "shots-1: " in said[3].stderr
    assert "shots-0" not in said[3].stderr
    assert {"shots-0", "shots-1"} <= set(said[4].stdout.split())
    assert "LeaderBoard" in said[5].stdout
    assert rows(workplace.path / "published.db")

    # Given the folder that the program names
    with workplace.at_work():
        exec(PROGRAM.replace('"sqlite:///', f'"sqlite:///{workplace.path}/'), {})

    printed = capsys.readouterr().out
    assert "handler='LeaderBoard', status='duplicate'" in printed  # the commands have handled all before
    assert "status='processed'" not in printed
    assert rows(workplace.path / "published.db") <= rows(workplace.path / "published-too.db")


def rows(file: Path) -> set[str]:
    """Return the ids of the hits that were published to a file."""
    with closing(sqlite3.connect(file)) as target:
        return {row[0] for row in target.execute("SELECT message_id FROM Hit")}


def test_the_sentences_of_refusals_are_those_of_the_code():
    code = "".join(path.read_text() for path in Path("runtime/spark/streaming").glob("*.py"))
    code = re.sub(r'"\s*\n\s*f?"', "", code)
    quoted = [
        part
        for cell in re.findall(r"^\| the? .*?\| (.*) \|$|^\| it .*?\| (.*) \|$", PAGE, re.MULTILINE)
        for part in re.findall(r"`([^`]+)`", "".join(cell))
    ]
    for sentence in (*quoted, "`is that of the query ...`".strip("`")):
        for words in re.split(r"0|shots|games|\.\.\.", sentence):
            assert words.strip() in code, sentence
