"""Parsing: text to syntax trees, without the warnings of Python's parser."""

from __future__ import annotations

import ast
import warnings


def parse_module(text: str) -> ast.Module:
    """Return the syntax tree of a module. Raises what `ast.parse` does."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)
        warnings.simplefilter("ignore", DeprecationWarning)
        return ast.parse(text)


def parse_expression(text: str) -> ast.expr | None:
    """Return the syntax tree of an expression, None when the text is not one."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            return ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
