"""Decorators: what the name of a decorated function refers to."""

from __future__ import annotations

from handlers.lint import names
from handlers.lint.checker import Checker
from handlers.lint.values import Arguments, Class, External, Function, Scope, Value, options

_CACHE = "CM804"


def decorated(function: Function, scope: Scope, checker: Checker) -> Value:
    """Return the value of a function's name: the function, or what the user's decorators return for it."""
    if function.definition.is_shared:
        with checker.importing():
            return _decorated(function, scope, checker)
    return _decorated(function, scope, checker)


def _decorated(function: Function, scope: Scope, checker: Checker) -> Value:
    value: Value = function
    for node in reversed(function.definition.decorators):
        decorator = checker.evaluate(node, scope)
        for option in options(decorator):
            if isinstance(option, External) and names.called(option.name) == _CACHE:
                checker.report(_CACHE, node, scope, option.name)
            elif isinstance(option, Function | Class):
                made = checker.call(option, Arguments((value,)), node, scope)
                value = made if isinstance(made, Function) else value
    return value
