"""Attributes of values."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import TYPE_CHECKING

from handlers.lint import classes, names
from handlers.lint.definitions import Scope
from handlers.lint.values import (
    Class,
    Collection,
    Instance,
    Method,
    Object,
    Outside,
    Package,
    Super,
    Value,
    collection,
    join,
    options,
    owned,
)

if TYPE_CHECKING:
    from handlers.lint.checker import Checker

CONTEXT = "handlers.Context"
_OF_CONTEXT: dict[str, Value] = {
    "now": Instance("datetime.datetime"),
    "random": Instance("random.Random"),
    "message_id": Instance("builtins.str"),
    "business_id": Instance("builtins.str"),
    "headers": collection("dict", Instance("builtins.str")),
}
_PATH = "pathlib.Path"
_SAME = "__call__"


def attribute(base: Value, name: str, node: ast.AST, scope: Scope, checker: Checker) -> Value:
    """Return what an attribute may hold, and report it when it is not to be read."""
    if name == _SAME:
        return base
    return join(
        *(_OF_TYPE.get(type(each), _of_other)(each, name, node, scope, checker) for each in options(base))
    )


def check_read(value: Value, node: ast.AST, scope: Scope, checker: Checker) -> None:
    """Report something that is not the user's and is not to be read."""
    for option in options(value):
        code = names.read(option.name) if isinstance(option, Outside) else None
        if code and isinstance(option, Outside):
            checker.report(code, node, scope, option.name)


def _of_outside(value: Value, name: str, node: ast.AST, scope: Scope, checker: Checker) -> Value:
    if not isinstance(value, Outside):
        return value
    if name == "__dict__":
        return Outside(f"{value.name}.__dict__")
    found = Outside(names.canonical(f"{value.name}.{name}"))
    check_read(found, node, scope, checker)
    return found


def _of_instance(value: Value, name: str, _node: ast.AST, _scope: Scope, _checker: Checker) -> Value:
    if isinstance(value, Instance) and value.of == CONTEXT and name in _OF_CONTEXT:
        return _OF_CONTEXT[name]
    if isinstance(value, Instance) and value.of == _PATH and name in ("parent", "parents"):
        return value if name == "parent" else collection("tuple", value)
    if isinstance(value, Instance) and name == "__class__":
        return Outside(value.of)
    return Method(value, name, owner=value.owner)


def _of_package(value: Value, name: str, _node: ast.AST, _scope: Scope, checker: Checker) -> Value:
    if not isinstance(value, Package):
        return value
    if name == "__dict__":
        return value
    return checker.in_package(value.module, name)


def _of_object(value: Value, name: str, node: ast.AST, _scope: Scope, checker: Checker) -> Value:
    if not isinstance(value, Object):
        return value
    found = classes.attribute_of_object(value, name, node, checker)
    is_plain = isinstance(found, Method) and found.owner is None
    return owned(found, value.owner) if is_plain else found


def _of_class(value: Value, name: str, _node: ast.AST, _scope: Scope, checker: Checker) -> Value:
    return classes.attribute_of_class(value, name, checker) if isinstance(value, Class) else value


def _of_super(value: Value, name: str, _node: ast.AST, _scope: Scope, checker: Checker) -> Value:
    return classes.attribute_of_super(value, name, checker) if isinstance(value, Super) else value


def _of_collection(value: Value, name: str, _node: ast.AST, _scope: Scope, _checker: Checker) -> Value:
    return Method(value, name, owner=value.owner)


def _of_other(value: Value, name: str, _node: ast.AST, _scope: Scope, _checker: Checker) -> Value:
    receiver = Value(owner=value.owner) if isinstance(value, Method) else value
    return Method(receiver, name, owner=value.owner)


_OF_TYPE: dict[type[Value], Callable[[Value, str, ast.AST, Scope, Checker], Value]] = {
    Outside: _of_outside,
    Instance: _of_instance,
    Package: _of_package,
    Object: _of_object,
    Class: _of_class,
    Super: _of_super,
    Collection: _of_collection,
}
