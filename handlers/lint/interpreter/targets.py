"""Targets of assignments: their names are bound to the value, or to a part of it."""

from __future__ import annotations

import ast

from handlers.lint.checker import Checker
from handlers.lint.hazards import mutation, order
from handlers.lint.values import Collection, Scope, Value, collection, element_of


def bind_target(target: ast.expr, value: Value, scope: Scope, checker: Checker) -> None:
    """Bind the names in a target to a value, and report a target that mutates a shared value."""
    if isinstance(target, ast.Name):
        mutation.check_target(target, scope, checker)
        scope.bind(target.id, value)
    elif isinstance(target, ast.Starred):
        bind_target(target.value, collection("list", element_of(value)), scope, checker)
    elif isinstance(target, ast.Tuple | ast.List):
        _unpack(target, value, scope, checker)
    else:
        if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Slice):
            order.check_iteration(value, target, scope, checker)
        mutation.check_target(target, scope, checker)


def _unpack(target: ast.Tuple | ast.List, value: Value, scope: Scope, checker: Checker) -> None:
    is_only = len(target.elts) == 1 and not isinstance(target.elts[0], ast.Starred)
    if not is_only:  # a single member is the first one in any order
        order.check_iteration(value, target, scope, checker)
    if isinstance(value, Collection) and len(value.parts) == len(target.elts):
        for each, part in zip(target.elts, value.parts, strict=True):
            bind_target(each, part, scope, checker)
        return
    for each in target.elts:
        bind_target(each, value if isinstance(each, ast.Starred) else element_of(value), scope, checker)
