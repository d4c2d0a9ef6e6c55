"""The pages of the documentation, their links, and the names of the code that they mention."""

import ast
import pkgutil
import re
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


def links(page: str) -> list[str]:
    """Return the relative links, pictures among them."""
    return _LINK.findall(_FENCE.sub("", text(page)))


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub makes of the headings of a page."""
    headings = _HEADING.findall(_FENCE.sub("", page.read_text()))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@cache
def _trees(*packages: str) -> list[ast.Module]:
    return [ast.parse(file.read_text()) for name in packages for file in sorted((ROOT / name).rglob("*.py"))]


def exists(dotted: str) -> bool:
    """Return whether a dotted name that begins with a package leads to a module, or to a name in a module."""
    try:
        pkgutil.resolve_name(dotted)
    except (ImportError, AttributeError):
        *_, owner, name = dotted.split(".")
        return name in classes().get(owner, ())  # fields have no value in the class
    return True


def defined(package: str) -> set[str]:
    """Return the top-level functions, classes and constants of a package's modules."""
    return {name for tree in _trees(package) for node in tree.body for name in _names(node)}


@cache
def classes() -> dict[str, set[str]]:
    """Return the members of the shipped packages' classes by class name. Inherited members are included."""
    own: dict[str, set[str]] = {}
    bases: dict[str, set[str]] = {}
    for tree in _trees("eventstore", "handlers", "runtime", "samples"):
        for node in filter(lambda each: isinstance(each, ast.ClassDef), ast.walk(tree)):
            assert isinstance(node, ast.ClassDef)
            assigned = [each for each in ast.walk(node) if isinstance(each, ast.Attribute)]
            members = {each.attr for each in assigned if ast.unparse(each.value) == "self"}
            own.setdefault(node.name, set()).update(members, *map(_names, node.body))
            above = (ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in node.bases)
            bases.setdefault(node.name, set()).update(set(above) - {node.name})

    def inherited(name: str) -> set[str]:
        return own.get(name, set()).union(*map(inherited, bases.get(name, ())))

    return {name: inherited(name) for name in own}


def _names(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    stored = [node.target] if isinstance(node, ast.AnnAssign) else getattr(node, "targets", [])
    return [each.id for target in stored for each in ast.walk(target) if isinstance(each, ast.Name)]
