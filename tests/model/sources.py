"""Where the shipped code makes calls: found in its source, to see that none is missed."""

import ast
from collections.abc import Collection, Iterator
from pathlib import Path

from tests.model.histories import Site

ROOT = Path(__file__).parents[2]
_CALLS = {"get", "query", "scan", "transact", "barrier"}
_CALLS_OF_REDIS = {"get", "set", "watch", "execute"}
_FUNCTIONS = {"query", "publish"}


def calls_in(module: str, *, leave_out: Collection[str] = ()) -> set[Site]:
    """Return the lines of a module, by its path from the root, that call a table or Redis, or publish.

    Those in the functions that are left out, each by its name in the module, are not among them: `Class.method`, or the
    name alone where it is in no class.
    """
    tree = ast.parse((ROOT / module).read_text())
    left_out = {line for name, function in _functions(tree) if name in leave_out for line in _lines(function)}
    return {(module, line) for line in _lines(tree) if line not in left_out}


def shipped(sites: tuple[Site, ...]) -> tuple[Site, ...]:
    """Return those places of a suspended coroutine that are in shipped code, by paths from the root."""
    return tuple(
        (path.removeprefix(f"{ROOT}/"), line)
        for path, line in sites
        if path.startswith(f"{ROOT}/") and not path.startswith(f"{ROOT}/tests/")
    )


def _lines(tree: ast.AST) -> Iterator[int]:
    for node in ast.walk(tree):
        if isinstance(node, ast.AsyncFor) and _is_pages(node.iter):
            yield node.lineno
        if isinstance(node, ast.Await) and isinstance(node.value, ast.Call):
            called = node.value.func
            if isinstance(called, ast.Name) and called.id in _FUNCTIONS:
                yield node.lineno
            if isinstance(called, ast.Attribute) and _is_table_call(called):
                yield node.lineno


def _is_pages(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "pages"


def _functions(tree: ast.Module) -> Iterator[tuple[str, ast.AsyncFunctionDef]]:
    """Give the coroutines of a module and those of its classes, by their names."""
    for node in tree.body:
        if isinstance(node, ast.AsyncFunctionDef):
            yield node.name, node
        if isinstance(node, ast.ClassDef):
            methods = [each for each in node.body if isinstance(each, ast.AsyncFunctionDef)]
            yield from [(f"{node.name}.{method.name}", method) for method in methods]


def _is_table_call(called: ast.Attribute) -> bool:
    owner = called.value
    name = owner.attr if isinstance(owner, ast.Attribute) else owner.id if isinstance(owner, ast.Name) else ""
    if name in {"_redis", "pipe"}:
        return called.attr in _CALLS_OF_REDIS
    return called.attr == "publish" or (called.attr in _CALLS and name in {"table", "_table"})
