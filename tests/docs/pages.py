"""The pages of the documentation, their links, and the names of the code that they mention."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("eventstore", "handlers", "runtime", "samples", "benchmarks", "tests")
_PATTERNS = ("*.md", "docs/**/*.md", "tests/*/README.md", "benchmarks/README.md", "scripts/reference/json.md")
PAGES = sorted(str(path.relative_to(ROOT)) for pattern in _PATTERNS for path in ROOT.glob(pattern))

_FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
_SPAN = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"\]\((?!https?:)([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def text(page: str) -> str:
    return (ROOT / page).read_text()


def spans(page: str) -> list[str]:
    """Return what stands between backticks, outside blocks of code."""
    return _SPAN.findall(_FENCE.sub("", text(page)))


def blocks(page: str) -> list[tuple[str, str]]:
    """Return the blocks of code, each with its language."""
    return _FENCE.findall(text(page))


def links(page: str) -> list[str]:
    """Return the relative links, pictures among them."""
    return _LINK.findall(_FENCE.sub("", text(page)))


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub makes of the headings of a page."""
    headings = _HEADING.findall(_FENCE.sub("", page.read_text()))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def _module_file(names: list[str]) -> Path | None:
    path = ROOT.joinpath(*names)
    if path.is_dir():
        return path / "__init__.py"
    return path.with_suffix(".py") if path.with_suffix(".py").exists() else None


def exists(dotted: str) -> bool:
    """Say whether a dotted name that begins with a package leads to a module, or to a name in one."""
    names = dotted.split(".")
    for length in range(len(names), 0, -1):
        file = _module_file(names[:length])
        if file is None:
            continue
        rest = names[length:]
        return not rest or (rest[0] in top_level(file) and _in_class(rest))
    return False


def _in_class(names: list[str]) -> bool:
    return len(names) == 1 or names[0] not in classes() or names[1] in classes()[names[0]]


@cache
def top_level(file: Path) -> frozenset[str]:
    """Return the names that a module defines or imports."""
    if not file.exists():
        return frozenset()
    return frozenset(name for node in ast.parse(file.read_text()).body for name in _names(node))


@cache
def classes() -> dict[str, set[str]]:
    """Return the members of the classes of the shipped packages, inherited ones included, by their names."""
    members: dict[str, set[str]] = {}
    bases: dict[str, set[str]] = {}
    for package in ("eventstore", "handlers", "runtime", "samples"):
        for file in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.ClassDef):
                    members.setdefault(node.name, set()).update(_members(node))
                    bases.setdefault(node.name, set()).update(map(_base, node.bases))
    return {name: _inherited(name, members, bases) for name in members}


def _inherited(name: str, members: dict[str, set[str]], bases: dict[str, set[str]]) -> set[str]:
    above = [_inherited(base, members, bases) for base in bases.get(name, set()) - {name}]
    return members.get(name, set()).union(*above)


def _base(node: ast.expr) -> str:
    return ast.unparse(node).partition("[")[0].rpartition(".")[2]


def _members(node: ast.ClassDef) -> Iterator[str]:
    for each in ast.walk(node):
        if isinstance(each, ast.Attribute) and ast.unparse(each.value) == "self":
            yield each.attr
    for child in node.body:
        yield from _names(child)


def _names(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Import | ast.ImportFrom):
        yield from (alias.asname or alias.name for alias in node.names)
    elif isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        yield from (each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name))
    elif isinstance(node, ast.If | ast.Try):
        for child in node.body:
            yield from _names(child)
