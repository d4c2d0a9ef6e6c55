"""Checks: files and their classes in, a report out."""

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
from handlers.lint.source.modules import Modules, SourceModule, shown
from handlers.lint.values import ClassDefinition

_RECURSION = 6000


@dataclass(frozen=True, slots=True)
class Target:
    """A file to check: all its handlers, states and messages, or only the named classes."""

    path: Path
    classes: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """Findings and notes, sorted by file and line, and the numbers of handlers and files that were checked."""

    findings: tuple[Finding, ...]
    notes: tuple[Finding, ...]
    handlers: int
    files: int

    def document(self) -> dict[str, Any]:
        """Return the report as a JSON object."""
        return {
            "findings": [finding.document() for finding in self.findings],
            "notes": [note.document() for note in self.notes],
            "handlers": self.handlers,
            "files": self.files,
        }


def check(targets: Iterable[Target]) -> Report:
    """Check files without importing them.

    Calls are followed into the user's other modules: those of the same package or folder, under the working directory,
    or on Python's path, but for installed packages. Raises `SourceError` when a file cannot be read or parsed, and when
    it does not define a named class. Takes some milliseconds for a handler.
    """
    checker = Interpreter(Modules())
    checked: dict[SourceModule, dict[ClassDefinition, None]] = {}
    for target in targets:
        module = checker.modules.open(target.path)
        checked.setdefault(module, {}).update(dict.fromkeys(_chosen(module, target, checker)))
    with _deep_recursion():
        for definition in chain.from_iterable(checked.values()):
            roots.check_class(definition, checker)
    found = sorted(_not_silenced(checker, checked), key=lambda finding: finding.order)
    return Report(
        findings=tuple(finding for finding in found if not finding.rule.is_note),
        notes=tuple(finding for finding in found if finding.rule.is_note),
        handlers=sum(roots.is_handler(each, checker) for each in chain.from_iterable(checked.values())),
        files=len(checked),
    )


@contextmanager
def _deep_recursion() -> Iterator[None]:
    """Raise Python's recursion limit: each call that is followed takes a dozen of Python's own."""
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
            f"There is no class {', '.join(sorted(missing))} in the source of {shown(module.path)}: a handler can be "
            f"checked when a class statement defines it."
        )
    return [definition for definition in found if definition.name in target.classes]


def _not_silenced(
    checker: Checker, checked: dict[SourceModule, dict[ClassDefinition, None]]
) -> list[Finding]:
    stay: list[Finding] = []
    for module in checker.modules:
        found = [finding for finding in checker.findings.values() if finding.path == module.path]
        if found or module in checked:
            stay += noqa.silence(module, found, [definition.node for definition in checked.get(module, ())])
    return stay
