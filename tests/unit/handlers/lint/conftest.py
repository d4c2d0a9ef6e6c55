"""Source that is checked: handlers written in a test, in files of their own."""

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from handlers.lint import Report, Target, check

HEAD = """
from handlers import Context, Handler, Message, State, handles

class Data(State):
    names: frozenset[str] = frozenset()
    count: int = 0

class Told(Message):
    id: str
    text: str = ""

"""
METHOD = """
class Listener(Handler[Data]):
    @handles(by="id")
    def told(self, state: Data, message: Told, context: Context) -> Data:
"""

Lint = Callable[..., Report]


@pytest.fixture
def lint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lint:
    """Check a handler with this body, in a working directory with other modules."""
    monkeypatch.chdir(tmp_path)

    def of_body(body: str, before: str = "", **modules: str) -> Report:
        for name, text in modules.items():
            (tmp_path / f"{name}.py").write_text(textwrap.dedent(text))
        method = textwrap.indent(textwrap.dedent(body).strip(), " " * 8)
        path = tmp_path / "listener.py"
        path.write_text(f"{HEAD}{textwrap.dedent(before)}\n{METHOD}{method}\n        return state\n")
        return check([Target(path)])

    return of_body


def codes(report: Report) -> list[str]:
    return [finding.code for finding in report.findings]
