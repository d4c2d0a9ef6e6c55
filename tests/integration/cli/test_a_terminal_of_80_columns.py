"""Help, tables and questions on a real terminal of 80 columns."""

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from runtime import Envelope
from tests.support.consumer import Consumer
from tests.support.logs import GAME
from tests.unit.cli.stores import ON_STORE, on_store, play

REPOSITORY = Path(__file__).parents[3]
_STYLE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Ended(NamedTuple):
    """The exit code of a command, and the lines that the terminal shows."""

    code: int
    lines: list[str]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("terminal")
    on_store(f"sqlite:///{path}/store.db", play)
    return path


def on_terminal(folder: Path, *arguments: str, answer: str = "") -> Ended:
    """Run a command on a terminal, which types an answer."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    widths = ("COLUMNS", "TERMINAL_WIDTH")
    environment = {name: value for name, value in os.environ.items() if name not in widths}
    process = subprocess.Popen(
        [sys.executable, "-m", "runtime", *arguments], stdin=theirs, stdout=theirs, stderr=theirs, cwd=folder,
        env={**environment, "PYTHONPATH": str(REPOSITORY), "TERM": "xterm"},
    )  # fmt: skip
    os.close(theirs)
    os.write(ours, answer.encode())
    shown = b""
    with suppress(OSError):  # on Linux, once the other end is closed
        while part := os.read(ours, 65536):
            shown += part
    os.close(ours)
    return Ended(process.wait(timeout=60), _STYLE.sub("", shown.decode()).replace("\r\n", "\n").splitlines())


@pytest.mark.parametrize(
    "command",
    [
        ["--help"],
        ["run", "--help"],
        ["truncate", "--help"],
        ["letters", "--help"],
        ["show", *ON_STORE],
        ["show", "ShootingRange", GAME, *ON_STORE],
        ["show", "--stats", *ON_STORE],
        ["sql", "@window", *ON_STORE],
    ],
    ids=" ".join,
)
def test_nothing_is_wider_than_the_terminal_or_cut(folder, command):
    ended = on_terminal(folder, *command)

    assert ended.code == 0, ended.lines
    assert max(map(len, ended.lines)) <= 80
    assert "…" not in "".join(ended.lines)


def test_a_long_id_is_wrapped_in_its_column_and_json_is_unchanged(folder):
    lines = on_terminal(folder, "show", *ON_STORE).lines

    (heads,) = [line for line in lines if "business id" in line]
    column = slice(heads.index("business id"), heads.index("versions"))
    assert GAME in "".join(line[column].strip() for line in lines)
    ended = on_terminal(folder, "show", *ON_STORE, "--json")

    assert len(json.loads("\n".join(ended.lines))["streams"]) == 3


def test_a_confirmation_is_asked_and_no_means_no(folder):
    def letter(table):
        return Consumer(table).handle(Envelope.of("broken", "FireAt", "{}", business_id=GAME))

    on_store(f"sqlite:///{folder}/store.db", letter)

    refused = on_terminal(folder, "letters", "discard", "--all", *ON_STORE, answer="n\n")
    done = on_terminal(folder, "letters", "discard", "--all", *ON_STORE, answer="y\n")

    assert refused.code == 1
    assert "Discarding 1 letter cannot be undone. Continue? [y/N]" in " ".join(refused.lines)
    assert (done.code, done.lines[-1].endswith("1 letter discarded.")) == (0, True)
