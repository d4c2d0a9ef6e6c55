"""Calls of the user's functions: their bodies are followed with the arguments of the call."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from handlers.lint.checker import Checker
from handlers.lint.resolution.annotations import annotated
from handlers.lint.values import (
    UNKNOWN,
    Arguments,
    Function,
    FunctionDefinition,
    Owner,
    Scope,
    Value,
    collection,
    join,
    options,
    owned,
)

_MOST_CONTEXTS = 12
_MADE_ONCE = ast.List | ast.Dict | ast.Set | ast.ListComp | ast.DictComp | ast.SetComp | ast.Call


def call_function(function: Function, arguments: Arguments, checker: Checker) -> Value:
    """Return the possible results of a function; each call with the same arguments is followed once."""
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
            _bind(definition, arguments, inside, checker)
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
    return annotated(definition.node.returns, definition.scope, checker)


def _bind(definition: FunctionDefinition, arguments: Arguments, scope: Scope, checker: Checker) -> None:
    """Bind the parameters of a function to the arguments, their defaults, or what their annotations say."""
    parameters = definition.node.args
    given = list(arguments.positional)
    named = dict(arguments.named)
    defaults = {} if arguments.is_open else dict(_defaults(parameters))
    for parameter in (*parameters.posonlyargs, *parameters.args, *parameters.kwonlyargs):
        is_positional = given and parameter not in parameters.kwonlyargs
        value = given.pop(0) if is_positional else named.pop(parameter.arg, None)
        if value is None and parameter.arg in defaults:
            scope.names[parameter.arg] = _default(defaults[parameter.arg], definition.scope, checker)
        else:
            scope.names[parameter.arg] = _argument(value or UNKNOWN, parameter, definition.scope, checker)
    if parameters.vararg:
        scope.names[parameters.vararg.arg] = collection("tuple", join(*given) if given else UNKNOWN)
    if parameters.kwarg:
        scope.names[parameters.kwarg.arg] = collection(
            "dict", item=join(*named.values()) if named else UNKNOWN
        )


def _default(node: ast.expr, scope: Scope, checker: Checker) -> Value:
    """Return the value of a default; one that can be changed is the same object for all calls."""
    value = checker.evaluate(node, scope)
    return owned(value, Owner.DEFAULT) if isinstance(node, _MADE_ONCE) else value


def _argument(value: Value, parameter: ast.arg, scope: Scope, checker: Checker) -> Value:
    """Return the value of a parameter: its annotation tells the value of an unknown argument."""
    if all(type(option) is Value for option in options(value)):
        return owned(annotated(parameter.annotation, scope, checker), value.owner)
    return value


def _defaults(parameters: ast.arguments) -> Iterator[tuple[str, ast.expr]]:
    named = [*parameters.posonlyargs, *parameters.args]
    for parameter, default in zip(reversed(named), reversed(parameters.defaults), strict=False):
        yield parameter.arg, default
    for parameter, only in zip(parameters.kwonlyargs, parameters.kw_defaults, strict=True):
        if only is not None:
            yield parameter.arg, only
