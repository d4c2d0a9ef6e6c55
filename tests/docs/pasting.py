"""The fenced blocks of a page, pasted as a reader does: files into a folder, commands into a shell of their own.

A comment above a block says what it is, where its language does not: see `tests.docs.running`.
"""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet

from tests.docs.pages import ROOT, text
from tests.plugins.azurite import free_port

_BLOCK = re.compile(
    r"^( *)(?:<!-- (\w+)(?:: (.*?))? -->\n *)?```(\w*)\n(.*?)^ *```", re.DOTALL | re.MULTILINE
)


class Block(NamedTuple):
    """A fenced block, with what the comment above it says."""

    mark: str
    argument: str
    language: str
    text: str


def blocks(page: str) -> Iterator[Block]:
    """Give the fenced blocks of a page from top to bottom."""
    for indent, mark, argument, language, code in _BLOCK.findall(text(page)):
        yield Block(mark, argument, language, re.sub(f"^{indent}", "", code, flags=re.MULTILINE))


def marked(page: str, kind: str) -> list[str]:
    return [block.text for block in blocks(page) if kind in (block.mark, block.argument)]


def write_files(page: str, folder: Path) -> None:
    for block in blocks(page):
        if block.mark == "file":
            (folder / block.argument).write_text(block.text)


def write_raffle(folder: Path) -> None:
    """Write what `consistent init` writes, but for the project file: the pages show all options."""
    write_files("docs/project.md", folder)
    (folder / "consistent.toml").unlink()


def on_free_ports(commands: str, *ports: int) -> str:
    """Replace the ports that a page names by free ones."""
    for port in ports:
        commands = re.sub(rf"\b{port}\b", str(free_port()), commands)
    return commands


def beside_the_project() -> dict[str, str]:
    """Return an environment in which this project is installed, and nothing else is set."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**bare_environment(), "PATH": path, "PYTHONPATH": str(ROOT)}


def bare_environment() -> dict[str, str]:
    """Return an environment of home and path alone, and on the path no environment of Python's that is active."""
    own, path = os.path.realpath(sys.prefix), os.environ["PATH"].split(os.pathsep)
    others = [each for each in path if not os.path.realpath(each).startswith(own)]
    return {"HOME": os.environ["HOME"], "PATH": os.pathsep.join(others)}


def paste(commands: str, folder: Path, environment: Mapping[str, str]) -> str:
    """Run commands in a new shell, which ends at the first that fails, and return what they print.

    What they leave running is ended. It may hold a pipe open, and so they print into a file.
    """
    log = folder.parent / f"{folder.name}.log"
    with log.open("w+") as said:
        shell = subprocess.Popen(
            ["bash", "-e", "-c", commands], cwd=folder, env=environment,
            stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        try:
            code = shell.wait()
        finally:
            with suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGTERM)
        said.seek(0)
        printed = said.read()
    assert code == 0, printed
    return printed


def of_outcomes(out: Path, field: str) -> list[Any]:
    """Return a field of all outcomes in a folder."""
    files = [file for file in out.rglob("*.parquet") if "_staging" not in file.parts]
    tables = [pyarrow.parquet.ParquetFile(file).read([field]) for file in files]
    return [value for table in tables for value in table[field].to_pylist()]


def statuses(out: Path) -> list[str]:
    """Return the statuses of all outcomes in a folder."""
    return sorted(of_outcomes(out, "status"))
