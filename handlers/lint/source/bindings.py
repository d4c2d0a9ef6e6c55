"""Bindings: the names that the statements of a module or class body bind, found without running them."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


@dataclass(frozen=True, slots=True)
class Imported:
    """A module, or an `attribute` of it; `level` is the number of dots of a relative import."""

    module: str
    attribute: str | None = None
    level: int = 0


@dataclass(frozen=True, slots=True)
class Assigned:
    """An assigned expression, or a part of it when it is unpacked; and the annotation of the name."""

    value: ast.expr | None
    annotation: ast.expr | None = None
    is_part: bool = False


Binding = Imported | Assigned | Definition


@dataclass(frozen=True, slots=True)
class Bindings:
    """The names of a body, each with all its bindings, and the star imports."""

    names: dict[str, list[Binding]]
    stars: tuple[Imported, ...]


def bindings_of(body: Iterable[ast.stmt]) -> Bindings:
    """Return the bindings of the statements of a body, those within functions and classes left out."""
    names: dict[str, list[Binding]] = {}
    stars = []
    for name, binding in _bound(body):
        if name == "*" and isinstance(binding, Imported):
            stars.append(binding)
        else:
            names.setdefault(name, []).append(binding)
    return Bindings(names, tuple(stars))


def imported_names(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, Imported]]:
    """Yield the names that an import binds."""
    for alias in node.names:
        if isinstance(node, ast.ImportFrom):
            yield alias.asname or alias.name, Imported(node.module or "", alias.name, node.level)
        elif alias.asname:
            yield alias.asname, Imported(alias.name)
        else:
            top = alias.name.partition(".")[0]
            yield top, Imported(top)


def target_names(target: ast.expr) -> Iterator[str]:
    """Yield the names in the target of an assignment."""
    for node in ast.walk(target):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def _bound(body: Iterable[ast.stmt]) -> Iterator[tuple[str, Binding]]:
    for statement in body:
        yield from _bound_by(statement)
        for inner in _bodies(statement):
            yield from _bound(inner)


def _bound_by(statement: ast.stmt) -> Iterator[tuple[str, Binding]]:
    match statement:
        case ast.Import() | ast.ImportFrom():
            yield from imported_names(statement)
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            yield statement.name, statement
        case ast.Assign(targets=targets, value=value):
            for target in targets:
                for name in target_names(target):
                    yield name, Assigned(value, is_part=not isinstance(target, ast.Name))
        case ast.For(target=target, iter=iterated):
            yield from ((name, Assigned(iterated, is_part=True)) for name in target_names(target))
        case ast.With(items=items):
            targets = [item.optional_vars for item in items if item.optional_vars is not None]
            yield from ((name, Assigned(None)) for target in targets for name in target_names(target))
        case _:
            yield from _named_alone(statement)


def _named_alone(statement: ast.stmt) -> Iterator[tuple[str, Binding]]:
    """Yield the name of a statement that can bind only one."""
    match statement:
        case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation, value=value):
            yield name, Assigned(value, annotation)
        case ast.AugAssign(target=ast.Name(id=name), value=value):
            yield name, Assigned(value)
        case _ if type(statement).__name__ == "TypeAlias":
            yield statement.name.id, Assigned(statement.value)  # type: ignore[attr-defined] # new in Python 3.12
        case _:
            return


def _bodies(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    if isinstance(statement, Definition):
        return
    for name in ("body", "orelse", "finalbody"):
        yield getattr(statement, name, [])
    for part in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
        yield part.body
