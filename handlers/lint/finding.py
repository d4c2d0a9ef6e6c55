"""Findings: which rule is broken where, and how a handler comes there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from handlers.lint.modules import shown
from handlers.lint.rules import RULES, Rule


@dataclass(frozen=True, slots=True)
class Finding:
    """A place that breaks a rule.

    `line` and `column` count from 1. `what` is what stands there, and `chain` the calls that lead there from a
    handler's method.
    """

    path: Path
    line: int
    column: int
    code: str
    what: str
    chain: tuple[str, ...] = ()

    @property
    def rule(self) -> Rule:
        """The rule that is broken."""
        return RULES[self.code]

    @property
    def order(self) -> tuple[str, int, int, str]:
        """By what findings are sorted."""
        return str(self.path), self.line, self.column, self.code

    def __str__(self) -> str:
        rule = self.rule
        way = f" ({' -> '.join((*self.chain, self.what))})" if self.chain else ""
        place = f"{shown(self.path)}:{self.line}:{self.column}"
        note = "note: " if rule.is_note else ""
        return f"{place}: {self.code} {note}{rule.name}: {self.what}: {rule.why}; use {rule.instead} instead{way}"

    def document(self) -> dict[str, Any]:
        """Return the finding for JSON."""
        rule = self.rule
        return {
            "path": shown(self.path),
            "line": self.line,
            "column": self.column,
            "code": self.code,
            "name": rule.name,
            "is_note": rule.is_note,
            "what": self.what,
            "why": rule.why,
            "instead": rule.instead,
            "chain": [*self.chain, self.what] if self.chain else [],
        }
