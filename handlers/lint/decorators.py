"""Decorators: what a decorated function is when it is called."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from handlers.lint import names
from handlers.lint.arguments import Arguments
from handlers.lint.definitions import Scope
from handlers.lint.values import Class, Function, Outside, Value, options

if TYPE_CHECKING:
    from handlers.lint.checker import Checker

_CACHE = "CM804"


def decorated(function: Function, scope: Scope, checker: Checker) -> Value:
    """Return what the name of a function holds: the function, or what the user's decorators made of it."""
    if function.definition.is_kept:
        with checker.importing():
            return _decorated(function, scope, checker)
    return _decorated(function, scope, checker)


def _decorated(function: Function, scope: Scope, checker: Checker) -> Value:
    value: Value = function
    for node in reversed(function.definition.decorators):
        decorator = checker.evaluate(node, scope)
        for option in options(decorator):
            if isinstance(option, Outside):
                _check_cache(option, node, scope, checker)
            elif isinstance(option, Function | Class):
                made = checker.call(option, Arguments((value,)), node, scope)
                value = made if isinstance(made, Function) else value
    return value


def _check_cache(decorator: Outside, node: ast.expr, scope: Scope, checker: Checker) -> None:
    if names.called(decorator.name) == _CACHE:
        checker.report(_CACHE, node, scope, decorator.name)
