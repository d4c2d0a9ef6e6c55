"""Classes of the user's: their bases, their members, and the marks of their methods."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from handlers.lint.checker import Checker
from handlers.lint.source.bindings import Binding
from handlers.lint.values import Class, ClassDefinition, External, options

MODELS: frozenset[object] = frozenset(
    {"pydantic.BaseModel", "handlers.State", "handlers.Message", "typing.NamedTuple"}
)
"""Bases that make fields of the annotated names in a class body."""


def mro(definition: ClassDefinition, checker: Checker) -> tuple[ClassDefinition | str, ...]:
    """Return a class and its bases, nearest first; those that are not the user's by their full name."""
    if not definition.mro:
        found: dict[ClassDefinition | str, None] = {}
        _collect(definition, found, checker)
        definition.mro = tuple(found)
    return definition.mro


def users_mro(definition: ClassDefinition, checker: Checker) -> list[ClassDefinition]:
    """Return a class and those of its bases that are the user's, nearest first."""
    return [base for base in mro(definition, checker) if isinstance(base, ClassDefinition)]


def is_a(definition: ClassDefinition, name: str, checker: Checker) -> bool:
    """Return whether a class is derived from one that is not the user's."""
    return name in mro(definition, checker)


def is_record(definition: ClassDefinition, checker: Checker) -> bool:
    """Return whether annotated names in the body of a class are fields of its instances."""
    if not MODELS.isdisjoint(mro(definition, checker)):
        return True
    marks = [
        checker.quietly(_without_call(node), definition.scope) for node in definition.node.decorator_list
    ]
    return any(
        isinstance(mark, External) and mark.name.endswith(("dataclass", "attr.s", "define")) for mark in marks
    )


def members(
    definition: ClassDefinition, name: str, checker: Checker
) -> Iterator[tuple[ClassDefinition, Binding]]:
    """Yield what a name is bound to in a class, or in the nearest base that has it."""
    for base in users_mro(definition, checker):
        if name in base.bindings.names:
            yield from ((base, binding) for binding in base.bindings.names[name])
            return


def marks_of(definition: ClassDefinition, function: ast.AST, checker: Checker) -> list[str]:
    """Return the full names of a method's decorators that are not the user's."""
    nodes = function.decorator_list if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) else []
    values = [checker.quietly(_without_call(node), definition.body_scope) for node in nodes]
    return [option.name for value in values for option in options(value) if isinstance(option, External)]


def _collect(definition: ClassDefinition, found: dict[ClassDefinition | str, None], checker: Checker) -> None:
    if definition in found:
        return
    found[definition] = None
    for node in definition.node.bases:
        base = checker.quietly(node.value if isinstance(node, ast.Subscript) else node, definition.scope)
        for option in options(base):
            if isinstance(option, Class):
                _collect(option.definition, found, checker)
            elif isinstance(option, External):
                found[option.name] = None


def _without_call(node: ast.expr) -> ast.expr:
    return node.func if isinstance(node, ast.Call) else node
