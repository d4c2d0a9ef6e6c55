"""The example of docs/evolution.md is run as it stands: its files, its changes, its commands and what they print."""

from __future__ import annotations

import random
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

import pytest

from handlers import Context
from tests.plugins.spark import Workplace

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "evolution.md").read_text()

_BLOCK = re.compile(r"<!-- (file|change|run|printed)(?:: (.*?))? -->\n```\w*\n(.*?)```", re.DOTALL)


@dataclass
class Done:
    """A command of the page, the exit code that the page says it has, what it did, and what the page shows of that."""

    command: str
    expected: int
    code: int = -1
    said: str = ""
    printed: str = ""


@pytest.fixture(scope="module")
def done(workplace: Workplace) -> list[Done]:
    """Follow the page from top to bottom."""
    folder = workplace.path
    commands: list[Done] = []
    for kind, argument, text in _BLOCK.findall(PAGE):
        if kind == "file":
            (folder / argument).write_text(text)
        elif kind == "change":
            change(folder, argument, text)
        elif kind == "printed":
            commands[-1].printed = text
        else:
            commands += [Done(command, int(argument or 0)) for command in text.splitlines()]
    for command in commands:
        program, *arguments = shlex.split(command.command)
        assert program == "consistent"
        ended = workplace.consistent(*arguments)
        command.code, command.said = ended.returncode, ended.stderr + ended.stdout
    return commands


def change(folder: Path, argument: str, diff: str) -> None:
    """Make one file of another by a diff without places: the lines taken away stand there once."""
    source, target = argument.split(" to ")
    lines = diff.splitlines(keepends=True)
    before = "".join(line[1:] for line in lines if line.startswith("-"))
    after = "".join(line[1:] for line in lines if line.startswith("+"))
    text = (folder / source).read_text()
    assert text.count(before) == 1
    (folder / target).write_text(text.replace(before, after))


@pytest.mark.thorough
def test_each_command_ends_as_the_page_says(done):
    assert [(each.command, each.code) for each in done] == [(each.command, each.expected) for each in done], [
        each.said for each in done if each.code != each.expected
    ]
    assert [each.command.split()[1] for each in done] == [
        "run", "verify", "verify", "run", "verify", "truncate", "verify", "verify",
    ]  # fmt: skip


@pytest.mark.thorough
def test_they_print_what_the_page_shows(done):
    shown = [(each, line) for each in done for line in each.printed.splitlines()]

    assert len(shown) == 4
    for each, line in shown:
        # A table folds what does not fit its column.
        assert words(line) in words(each.said), each.said


def words(text: str) -> str:
    return re.sub(r"\s", "", text)


@pytest.mark.thorough
def test_they_find_what_the_page_tells(done):
    _, mistake, changed, _, early, truncated, january, march = [each.said for each in done]

    assert "3 of 3 deliveries would no longer give what they gave; 0 match." in mistake
    assert "No stored version differs: 3 of 3 deliveries match." in changed
    assert "3 of 3 deliveries would no longer give what they gave; 0 match." in early
    assert "3 versions in 2 runs were cut" in truncated
    assert "No stored version differs: 0 of 3 deliveries match." in january
    assert "not_kept: Messages whose versions may have been cut" in january
    assert "No stored version differs: 2 of 4 deliveries match." in march


@pytest.mark.thorough
def test_the_copies_in_march_are_duplicates(done):
    march = done[3].said

    (row,) = [cells for cells in map(str.split, march.splitlines()) if cells[:2] == ["0", "Customer"]]

    assert row[2:6] == ["2", "2", "0", "0"]


def test_a_number_that_is_not_offered_can_be_recorded_as_it_shows():
    (code,) = [block for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "noise" in block]
    first = Context("Bell", "east", "m-1", 0)
    noise = [
        run_with(code, first),
        run_with(code, Context("Bell", "east", "m-1", 0, recorded=first.captured)),
    ]

    assert noise[0] == noise[1]
    assert isinstance(noise[0], float)


def run_with(code: str, context: Context) -> object:
    names = {"context": context, "random": random}
    exec(code, names)
    return names["noise"]
