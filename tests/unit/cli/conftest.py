"""The command line, called in this process, and a small store of games to look at."""

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from eventstore import drive
from runtime.cli import main
from tests.unit.cli.shapes import document_of
from tests.unit.cli.stores import on_store, play, work

_STYLE = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True)
class Said:
    """What a command said, and its exit code."""

    code: int
    out: str
    err: str
    arguments: tuple[str, ...]

    @property
    def document(self):
        """The document that was printed, which is as scripts/reference/json.md says."""
        assert self.out, self.err
        return document_of(self.out, *self.arguments)


Consistent = Callable[..., Said]


@pytest.fixture
def consistent(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Consistent:
    """Call the command line in an empty working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("COLUMNS", "250")
    monkeypatch.setenv("TERMINAL_WIDTH", "250")
    for name in ("CONSISTENT_STORE", "CONSISTENT_TABLE"):
        monkeypatch.delenv(name, raising=False)

    def call(*arguments: str) -> Said:
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        captured = capsys.readouterr()
        out, err = (_STYLE.sub("", each) for each in captured)
        return Said(int(ended.value.code or 0), out, err, arguments)

    return call


@pytest.fixture
def store(tmp_path: Path) -> str:
    """Make a store with a few games in it, and give its url."""
    url = f"sqlite:///{tmp_path}/store.db"
    on_store(url, play)
    return url


@pytest.fixture
def worked(tmp_path):
    """Play a game with an algorithm, on the table of the store."""
    return lambda *how, **more: drive(work(tmp_path, *how, **more))
