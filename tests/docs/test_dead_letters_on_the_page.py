"""What docs/operations.md shows of dead letters is run as it stands."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from eventstore import connect, drive
from runtime.algorithms.letters.reading import find_letters
from runtime.algorithms.letters.selection import Selection
from runtime.storage import limits
from tests.docs.pages import text

PAGE = text("docs/operations.md").partition("## Dead letters and redrive\n")[2].partition("\n## ")[0]
_FILE = re.compile(r"<!-- file: (\S+) -->\n```\w*\n(.*?)```", re.DOTALL)
_COMMANDS = re.compile(r"<!-- redrive -->\n```\n(.*?)```", re.DOTALL)
_SED = re.compile(r"sed s/(\w+)/(\w+)/ (\S+) > (\S+)")


def waiting(folder: Path) -> int:
    async def count() -> int:
        async with connect(f"sqlite:///{folder}/till.db") as store:
            table = await store.table("till")
            return len([found async for found in find_letters(table, Selection())])

    return drive(count())


@pytest.mark.thorough
def test_its_commands_do_what_it_says(workplace):
    for name, content in _FILE.findall(PAGE):
        (workplace.path / name).write_text(content)
    (block,) = _COMMANDS.findall(PAGE)
    letters, said = [], ""

    for line in block.splitlines():
        edit = _SED.fullmatch(line)
        if edit is not None:
            before, after, *names = edit.groups()
            source, target = (workplace.path / name for name in names)
            target.write_text(source.read_text().replace(before, after))
            continue
        done = workplace.consistent(*shlex.split(line)[1:])
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        said = done.stdout
        letters.append(waiting(workplace.path))

    assert letters == [3, 3, 3, 2, 1, 0, 0]
    assert json.dumps({"total": 512}) in said


def test_its_limits_are_those_of_the_code():
    said = " ".join(PAGE.split())

    assert (
        f"{limits.MAX_LETTERS:,} letters, or {limits.MAX_STREAM_LETTER_BYTES // limits.MIB} MiB of them"
        in said
    )
    assert f"A task adds up to {limits.MAX_TASK_LETTERS:,} letters of the table" in said
