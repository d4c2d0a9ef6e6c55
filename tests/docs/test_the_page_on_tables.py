"""What docs/tables.md shows is run as it stands, and its options are those of the code."""

from __future__ import annotations

import asyncio
import re
import shlex

import pytest

from eventstore import connect
from runtime.spark.sources import _OPTIONS
from runtime.tables.streams import _READ_ONE_BY_ONE
from tests.docs.pages import text
from tests.plugins.spark import Workplace
from tests.unit.cli.stores import play

PAGE = text("docs/tables.md")
COMMANDS = re.findall(r"^consistent .*$", PAGE, re.MULTILINE)
(PROGRAM,) = re.findall(r"<!-- run: python -->\n```python\n(.*?)```", PAGE, re.DOTALL)
(ON_SPARK,) = re.findall(r"<!-- run: spark -->\n```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture(scope="module")
def folder(workplace: Workplace) -> Workplace:
    """Give a folder with the store that the page names."""

    async def played() -> None:
        async with connect(f"sqlite:///{workplace.path}/store.db") as store:
            await play(await store.table("games"))

    asyncio.run(played())
    return workplace


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_runs(folder, command):
    done = folder.consistent(*shlex.split(command)[1:])

    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_the_program_runs(folder, capsys):
    with folder.at_work():
        exec(PROGRAM, {})

    assert "StartNewRound" in capsys.readouterr().out


@pytest.mark.thorough
def test_the_program_on_spark_runs(folder, capsys):
    with folder.at_work():
        exec(ON_SPARK.replace("sqlite:///", f"sqlite:///{folder.path}/"), {})

    assert "FireAt" in capsys.readouterr().out


def test_all_options_are_told():
    told = set(re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", PAGE, re.MULTILINE))
    named = {name for names in told for name in re.findall(r"\w+", names)}

    known = {name for options in _OPTIONS.values() for name in options}
    assert named & known == known - {"store", "table"}


def test_its_figures_are_those_of_the_code():
    assert f"for more than {_READ_ONE_BY_ONE} of 1,000" in PAGE
