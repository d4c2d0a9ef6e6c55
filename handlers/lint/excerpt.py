"""Excerpts: an expression as it is shown in a finding."""

from __future__ import annotations

import ast

_LONGEST = 60


def excerpt(node: ast.AST) -> str:
    """Return the source of an expression on one line, cut when it is long."""
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
