"""Checking files: which of their classes are checked, and what was found in all."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from handlers.lint import noqa, roots
from handlers.lint.checker import Checker
from handlers.lint.errors import SourceError
from handlers.lint.finding import Finding
from handlers.lint.interpreter.interpreter import Interpreter
from handlers.lint.source.modules import Library, SourceModule, shown
from handlers.lint.values import ClassDefinition

_RECURSION = 6000


@dataclass(frozen=True, slots=True)
class Target:
    """A file to check: all its handlers, states and messages, or only the classes that are named."""

    path: Path
    classes: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """What was found, in the order of files and lines, and how many handlers and files were checked."""

    findings: tuple[Finding, ...]
    notes: tuple[Finding, ...]
    handlers: int
    files: int

    def document(self) -> dict[str, Any]:
        """Return the report for JSON."""
        return {
            "findings": [finding.document() for finding in self.findings],
            "notes": [note.document() for note in self.notes],
            "handlers": self.handlers,
            "files": self.files,
        }


def check(targets: Iterable[Target]) -> Report:
    """Check files without importing them.

    What their handlers call is followed into other modules of the user's, wherever these are. Raises `SourceError`
    when a file cannot be read or parsed, and when a class that is named is not in it.
    """
    checker = Interpreter(Library())
    checked: dict[SourceModule, dict[ClassDefinition, None]] = {}
    for target in targets:
        module = checker.library.open(target.path)
        checked.setdefault(module, {}).update(dict.fromkeys(_chosen(module, target, checker)))
    with _deep_recursion():
        for definition in chain.from_iterable(checked.values()):
            roots.check_class(definition, checker)
    found = sorted(_left(checker, checked), key=lambda finding: finding.order)
    return Report(
        findings=tuple(finding for finding in found if not finding.rule.is_note),
        notes=tuple(finding for finding in found if finding.rule.is_note),
        handlers=sum(roots.is_handler(each, checker) for each in chain.from_iterable(checked.values())),
        files=len(checked),
    )


@contextmanager
def _deep_recursion() -> Iterator[None]:
    """Let calls go deeper: each call that is followed takes a dozen of Python's own."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, _RECURSION))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


def _chosen(module: SourceModule, target: Target, checker: Checker) -> list[ClassDefinition]:
    found = list(roots.classes_in(module, checker))
    if target.classes is None:
        return found
    missing = target.classes - {definition.name for definition in found}
    if missing:
        raise SourceError(
            f"There is no class {', '.join(sorted(missing))} in the source of {shown(module.path)}: a handler that "
            f"is made while the program runs cannot be checked."
        )
    return [definition for definition in found if definition.name in target.classes]


def _left(checker: Checker, checked: dict[SourceModule, dict[ClassDefinition, None]]) -> list[Finding]:
    left: list[Finding] = []
    for module in checker.library:
        found = [finding for finding in checker.findings.values() if finding.path == module.path]
        if found or module in checked:
            left += noqa.silence(module, found, [definition.node for definition in checked.get(module, ())])
    return left
