"""Comments `# noqa: CODE reason`, which silence rules on their line, or in the statement that begins there."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from handlers.lint.finding import Finding
from handlers.lint.source.modules import SourceModule

_COMMENT = re.compile(
    r"#\s*noqa:\s*(?P<codes>[A-Z]+[0-9]+(?:\s*,\s*[A-Z]+[0-9]+)*)(?P<reason>[^#]*)", re.IGNORECASE
)
_OURS = "CM"


@dataclass(frozen=True, slots=True)
class Noqa:
    """A comment: its place, the codes of this linter in it, and the reason."""

    line: int
    column: int
    codes: tuple[str, ...]
    reason: str


def silence(module: SourceModule, found: Iterable[Finding], checked: Iterable[ast.AST]) -> Iterator[Finding]:
    """Yield the findings of a module that are not silenced, and those about its comments.

    An unused comment is reported only within the classes that were checked: other code may not have been followed.
    """
    comments = list(_comments(module))
    starts = _starts(module.tree) if comments else {}
    used: set[tuple[Noqa, str]] = set()
    for finding in found:
        lines = {finding.line, starts.get(finding.line, finding.line)}
        silencing = [each for each in comments if each.line in lines and finding.code in each.codes]
        used.update((each, finding.code) for each in silencing)
        if not silencing:
            yield finding
    ranges = [(getattr(node, "lineno", 0), getattr(node, "end_lineno", 0)) for node in checked]
    for comment in comments:
        is_inside = any(first <= comment.line <= last for first, last in ranges)
        yield from _complaints(module, comment, used, is_inside=is_inside)


def _complaints(
    module: SourceModule, comment: Noqa, used: set[tuple[Noqa, str]], *, is_inside: bool
) -> Iterator[Finding]:
    if not comment.reason:
        yield Finding(module.path, comment.line, comment.column, "CM902", ", ".join(comment.codes))
    for code in comment.codes:
        if is_inside and (comment, code) not in used:
            yield Finding(module.path, comment.line, comment.column, "CM903", code)


def _comments(module: SourceModule) -> Iterator[Noqa]:
    for token in tokenize.generate_tokens(io.StringIO(module.text).readline):
        match = _COMMENT.search(token.string) if token.type == tokenize.COMMENT else None
        if match is None:
            continue
        codes = tuple(code.strip().upper() for code in match["codes"].split(","))
        ours = tuple(code for code in codes if code.startswith(_OURS))
        if ours:
            yield Noqa(token.start[0], token.start[1] + 1, ours, match["reason"].strip(" -:()"))


def _starts(tree: ast.Module) -> dict[int, int]:
    """Return, by line, the first line of the innermost statement on it."""
    starts: dict[int, int] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt):
            for line in range(node.lineno, (node.end_lineno or node.lineno) + 1):
                starts[line] = max(starts.get(line, 0), node.lineno)
    return starts
