"""The corpus: handlers with marks at the lines that are wrong, and what the linter says of them.

A line ends in `# expect: CODE, ...` when that is to be found there, in `# miss: CODE why` when it is wrong and the
linter is known not to find it, and in `# false: CODE why` when it is right and the linter is known to report it.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from handlers.lint import Report, Target, check

CORPUS = Path(__file__).with_name("corpus")
_MARK = re.compile(r"# (?P<kind>expect|miss|false): (?P<codes>CM\d{3}(?:, CM\d{3})*)(?P<why>.*)")

Place = tuple[str, int, str]


@dataclass(frozen=True, slots=True)
class Mark:
    """What is said of a line: its kind, and why where that is not plain."""

    kind: str
    file: str
    line: int
    code: str
    why: str

    @property
    def place(self) -> Place:
        return self.file, self.line, self.code


@cache
def checked(folder: str) -> Report:
    return check(Target(path) for path in sorted((CORPUS / folder).glob("*.py")))


def marks(folder: str, kind: str) -> list[Mark]:
    return [mark for mark in _marks(folder) if mark.kind == kind]


def places(report: Report) -> Counter[Place]:
    return Counter((each.path.name, each.line, each.code) for each in report.findings)


def handlers(folder: str) -> list[str]:
    """Return the names of the classes with a method that handles messages."""
    return [
        node.name
        for path in sorted((CORPUS / folder).glob("*.py"))
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef) and "@handles" in ast.unparse(node)
    ]


def _marks(folder: str) -> Iterator[Mark]:
    for path in sorted((CORPUS / folder).glob("*.py")):
        for number, line in enumerate(path.read_text().splitlines(), start=1):
            for found in _MARK.finditer(line):
                for code in found["codes"].split(", "):
                    yield Mark(found["kind"], path.name, number, code, found["why"].strip())
