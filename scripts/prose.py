"""Print the share of docstrings that paraphrase, and fail where a room is over its ceiling: `python scripts/prose.py`.

The marker words hit every fourth docstring of an earlier edition, and hardly any of dramatiq, structlog or httpx.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MARKER = re.compile(
    r"\b(what|whoever|those that|as it (is|was)|so many|anew|beside|in place of|none of|any more|as far as)\b",
    re.IGNORECASE,
)
CEILINGS = {"eventstore": 2.0, "handlers": 2.0, "samples": 2.0, "runtime": 2.0}
"""The maximum share of function docstrings with a marker word, in percent. Lower them as rooms are rewritten."""


def docstrings(source: str) -> Iterator[str]:
    """Yield the docstrings of the functions in a module."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (text := ast.get_docstring(node)):
            yield text


def main() -> None:
    """Print a table, and exit with 1 where a room is over its ceiling."""
    is_over = False
    for room, ceiling in CEILINGS.items():
        found = [text for file in (ROOT / room).rglob("*.py") for text in docstrings(file.read_text())]
        share = 100 * sum(bool(MARKER.search(text)) for text in found) / len(found)
        is_over |= share > ceiling
        print(
            f"paraphrase in {room:<28} {share:>8.1f} of {ceiling:>8.1f}{'  rewrite' if share > ceiling else ''}"
        )
    sys.exit(is_over)


if __name__ == "__main__":
    main()
