"""What the pages say of counts and windows is run as it stands, and their figures are those of the code."""

from __future__ import annotations

import asyncio
import json
import shlex
from datetime import UTC, datetime
from uuid import UUID

import pytest

from eventstore import Int64, connect
from eventstore.limits import row_bytes
from eventstore.port import Row
from runtime.cleanup.window import SHARES
from tests.docs.pages import blocks, text
from tests.plugins.spark import Workplace
from tests.unit.cli.stores import play

OPERATIONS = blocks("docs/operations.md")
COMMANDS = [
    line
    for _, code in OPERATIONS
    for line in code.splitlines()
    if line.startswith(("consistent window", "consistent stats", "consistent check"))
]
PROGRAMS = [code for _, code in OPERATIONS if "runtime.cleanup.window" in code]


@pytest.fixture(scope="module")
def folder(workplace: Workplace) -> Workplace:
    """Give a folder with the store that the pages name."""

    async def played() -> None:
        async with connect(f"sqlite:///{workplace.path}/store.db") as store:
            await play(await store.table("games"))

    asyncio.run(played())
    return workplace


@pytest.mark.parametrize(
    "command",
    [pytest.param(line, marks=[pytest.mark.thorough] if "--master" in line else []) for line in COMMANDS],
)
def test_each_command_runs(folder, command):
    done = folder.consistent(*shlex.split(command)[1:])

    assert done.returncode == 0, done.stderr
    if "--json" in command:
        assert json.loads(done.stdout)["streams"] == 3


def test_there_are_commands_and_a_program():
    assert {command.split()[1] for command in COMMANDS} == {"window", "stats", "check"}
    assert len(PROGRAMS) == 1


def test_the_program_runs(folder, capsys):
    with folder.at_work():
        exec(PROGRAMS[0], {})

    assert "each duplicate is recognised" in capsys.readouterr().out


def test_the_shares_are_those_of_the_code():
    assert SHARES == (1.0, 0.99, 0.9, 0.5, 0.1)
    said = " ".join(text("docs/operations.md").split())
    assert "in all streams, in 99 %, 90 %, half and a tenth of those that were cut" in said


@pytest.mark.parametrize(
    ("kind", "value", "size"),
    [
        ("text", "abc", 4 + 2 * 3),
        ("binary", b"abc", 4 + 3),
        ("int64, double, datetime", Int64(1), 8),
        ("int64, double, datetime", 1.5, 8),
        ("int64, double, datetime", datetime(2026, 1, 1, tzinfo=UTC), 8),
        ("int32", 1, 4),
        ("guid", UUID(int=1), 16),
        ("boolean", True, 1),
    ],
)
def test_bytes_are_counted_as_the_page_on_storage_says(kind, value, size):
    (said,) = [
        line.split("|")[2] for line in text("docs/storage.md").splitlines() if line.startswith(f"| {kind} |")
    ]
    assert said.split(",")[0].strip() in {"4", str(size)}

    # 4, two keys of one character, 8 for the property and two for its name
    assert row_bytes(Row("p", "r", "", {"N": value})) == 4 + 2 * 2 + 8 + 2 + size
