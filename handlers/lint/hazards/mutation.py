"""Mutation: changes of the state, the message, or what modules, classes and defaults share between messages."""

from __future__ import annotations

import ast

from handlers.lint.checker import Checker
from handlers.lint.names import listed
from handlers.lint.values import (
    Class,
    Collection,
    Function,
    Instance,
    Method,
    Object,
    Owner,
    Package,
    Scope,
    Value,
    options,
)

MUTATORS = listed(
    "append appendleft extend extendleft insert add update pop popleft popitem remove clear discard setdefault sort "
    "reverse rotate subtract difference_update intersection_update symmetric_difference_update __setattr__ "
    "__delattr__ __setitem__ __delitem__ __ior__ __iadd__"
)
_CODES = {
    Owner.STATE: "CM806",
    Owner.MESSAGE: "CM807",
    Owner.MODULE: "CM801",
    Owner.CLASS: "CM802",
    Owner.DEFAULT: "CM803",
}
_IMMUTABLE = frozenset({"tuple", "frozenset"})
_MUTABLE = frozenset({"list", "dict", "set"})


def check_changed(value: Value, node: ast.AST, scope: Scope, checker: Checker) -> None:
    """Report that a shared value is mutated."""
    for option in options(value):
        code = _code(option)
        if code:
            checker.report(code, node, scope)


def check_target(target: ast.expr, scope: Scope, checker: Checker) -> None:
    """Report that an attribute or item of a shared value is set or deleted."""
    if isinstance(target, ast.Attribute | ast.Subscript):
        check_changed(checker.evaluate(target.value, scope), target, scope, checker)
    if isinstance(target, ast.Subscript):
        checker.evaluate(target.slice, scope)
    if isinstance(target, ast.Name) and target.id in scope.globals:
        checker.report("CM801", target, scope, target.id)


def check_augmented(target: ast.expr, held: Value, scope: Scope, checker: Checker) -> None:
    """Report that `+=` mutates a shared list, dict or set."""
    if not isinstance(target, ast.Name):
        return
    for option in options(held):
        if isinstance(option, Collection) and option.kind in _MUTABLE:
            check_changed(option, target, scope, checker)


def is_changing(method: Method) -> bool:
    """Return whether a method mutates its receiver."""
    receiver = method.receiver
    if isinstance(receiver, Collection) and receiver.kind in _IMMUTABLE:
        return False
    return method.name in MUTATORS


def _code(value: Value) -> str | None:
    if isinstance(value, Class):
        return _CODES[Owner.CLASS]
    if isinstance(value, Package) or (isinstance(value, Function) and value.definition.is_shared):
        return _CODES[Owner.MODULE]
    if isinstance(value, Collection) and value.kind in _IMMUTABLE:
        return None
    if (
        value.owner is None
        and isinstance(value, Method)
        and isinstance(value.receiver, Instance | Object | Collection)
    ):
        return _CODES[value.receiver.owner] if value.receiver.owner else None
    return _CODES[value.owner] if value.owner else None
