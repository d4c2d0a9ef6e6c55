"""Calls of the user's functions: their bodies are followed with what they are given."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from handlers.lint.arguments import Arguments, bind
from handlers.lint.definitions import FunctionDefinition, Scope
from handlers.lint.values import UNKNOWN, Function, Value, collection, join

if TYPE_CHECKING:
    from handlers.lint.checker import Checker

_MOST_CONTEXTS = 12


def call_function(function: Function, arguments: Arguments, checker: Checker) -> Value:
    """Return what a function may give; each call with the same arguments is followed once."""
    definition = function.definition
    if function.bound is not None:
        arguments = arguments.after(function.bound)
    if checker.is_too_deep(definition.node):
        return _declared(definition, checker)
    key = ("call", definition, arguments, checker.mode)
    if key not in checker.known:
        contexts = ("contexts", definition.node, checker.mode)
        seen = checker.counts.get(contexts, 0)
        if seen >= _MOST_CONTEXTS:
            return _declared(definition, checker)
        checker.counts[contexts] = seen + 1
        checker.known[key] = _followed(definition, arguments, checker)
    return checker.known[key]


def _followed(definition: FunctionDefinition, arguments: Arguments, checker: Checker) -> Value:
    inside = Scope(definition.module, definition.scope, function=definition)
    with checker.within(definition.name, definition.node, definition.module):
        try:
            bind(definition, arguments, inside, checker)
            if isinstance(definition.node, ast.Lambda):
                return checker.evaluate(definition.node.body, inside)
            checker.execute(definition.node.body, inside)
        except RecursionError:
            checker.report(
                "CM901", definition.node, definition.scope, f"{definition.name} is nested too deeply"
            )
    if definition.is_generator:
        return collection("iterator", join(*inside.yielded) if inside.yielded else UNKNOWN)
    given = join(*inside.returned) if inside.returned else UNKNOWN
    return _declared(definition, checker) if given == UNKNOWN else given


def _declared(definition: FunctionDefinition, checker: Checker) -> Value:
    if isinstance(definition.node, ast.Lambda):
        return UNKNOWN
    return checker.annotated(definition.node.returns, definition.scope)
