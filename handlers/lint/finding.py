"""Findings: which rule is broken where, and through which calls a handler gets there."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from handlers.lint.rules import RULES, Rule
from handlers.lint.source.modules import shown

_LONGEST_EXCERPT = 60


@dataclass(frozen=True, slots=True)
class Finding:
    """A place that breaks a rule.

    `line` and `column` count from 1. `what` is the offending source or name, and `chain` the calls that lead there
    from a handler's method.
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
        """The sort key of findings: file, line, column, code."""
        return str(self.path), self.line, self.column, self.code

    def __str__(self) -> str:
        rule = self.rule
        way = f" ({' -> '.join((*self.chain, self.what))})" if self.chain else ""
        place = f"{shown(self.path)}:{self.line}:{self.column}"
        note = "note: " if rule.is_note else ""
        return f"{place}: {self.code} {note}{rule.name}: {self.what}: {rule.why}; use {rule.instead} instead{way}"

    def document(self) -> dict[str, Any]:
        """Return the finding as a JSON object."""
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


def excerpt(node: ast.AST) -> str:
    """Return the source of an expression on one line, cut to 60 characters."""
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= _LONGEST_EXCERPT else f"{text[: _LONGEST_EXCERPT - 3]}..."
