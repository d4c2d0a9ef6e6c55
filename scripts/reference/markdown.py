"""Markdown for the pages of the reference."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)


def code(text: object) -> str:
    """Return text between backticks."""
    return f"`{text}`"


def page(title: str, *parts: str) -> str:
    """Return a page of parts."""
    return "\n\n".join([f"# {title}", *(part.strip("\n") for part in parts)]) + "\n"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
