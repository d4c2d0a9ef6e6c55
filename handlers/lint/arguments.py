"""Arguments of a call, and the parameters that they are bound to."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from handlers.lint.definitions import FunctionDefinition, Scope
from handlers.lint.values import UNKNOWN, Owner, Value, collection, join, options, owned

if TYPE_CHECKING:
    from handlers.lint.checker import Checker


@dataclass(frozen=True, slots=True)
class Arguments:
    """The values given to a call; `is_open` when there may be more of them, after a star."""

    positional: tuple[Value, ...] = ()
    named: tuple[tuple[str, Value], ...] = ()
    is_open: bool = False

    def __iter__(self) -> Iterator[Value]:
        yield from self.positional
        yield from (value for _, value in self.named)

    def first(self) -> Value:
        """Return the first argument, unknown when there is none."""
        return self.positional[0] if self.positional else UNKNOWN

    def get(self, position: int, name: str) -> Value | None:
        """Return an argument by its position or name, None when it is not given."""
        if position < len(self.positional):
            return self.positional[position]
        return dict(self.named).get(name, UNKNOWN if self.is_open else None)

    def after(self, *first: Value) -> Arguments:
        """Return the same arguments with others before them."""
        return Arguments((*first, *self.positional), self.named, self.is_open)


def bind(definition: FunctionDefinition, arguments: Arguments, scope: Scope, checker: Checker) -> None:
    """Let the parameters of a function hold the arguments, their defaults, or what their annotations say."""
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
            scope.names[parameter.arg] = _held(value or UNKNOWN, parameter, definition.scope, checker)
    if parameters.vararg:
        scope.names[parameters.vararg.arg] = collection("tuple", join(*given) if given else UNKNOWN)
    if parameters.kwarg:
        scope.names[parameters.kwarg.arg] = collection(
            "dict", item=join(*named.values()) if named else UNKNOWN
        )


def _default(node: ast.expr, scope: Scope, checker: Checker) -> Value:
    value = checker.evaluate(node, scope)
    return owned(value, Owner.DEFAULT) if _is_kept(node) else value


def _held(value: Value, parameter: ast.arg, scope: Scope, checker: Checker) -> Value:
    """Return what a parameter holds: of what nothing is known, what its annotation says."""
    if all(type(option) is Value for option in options(value)):
        return owned(checker.annotated(parameter.annotation, scope), value.owner)
    return value


def _is_kept(default: ast.expr) -> bool:
    """Say whether a default is something that can be changed: one object for all calls."""
    return isinstance(
        default, ast.List | ast.Dict | ast.Set | ast.ListComp | ast.DictComp | ast.SetComp | ast.Call
    )


def _defaults(parameters: ast.arguments) -> Iterator[tuple[str, ast.expr]]:
    named = [*parameters.posonlyargs, *parameters.args]
    for parameter, default in zip(reversed(named), reversed(parameters.defaults), strict=False):
        yield parameter.arg, default
    for parameter, only in zip(parameters.kwonlyargs, parameters.kw_defaults, strict=True):
        if only is not None:
            yield parameter.arg, only
