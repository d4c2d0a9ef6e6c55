"""Attributes of values."""

from __future__ import annotations

import ast

from handlers.lint import names
from handlers.lint.checker import Checker
from handlers.lint.resolution import members
from handlers.lint.resolution.lookup import in_package
from handlers.lint.values import (
    Class,
    External,
    Instance,
    Method,
    Object,
    Package,
    Scope,
    Super,
    Value,
    collection,
    join,
    options,
    owned,
)

CONTEXT = "handlers.Context"
_OF_CONTEXT: dict[str, Value] = {
    "now": Instance("datetime.datetime"),
    "random": Instance("random.Random"),
    "message_id": Instance("builtins.str"),
    "business_id": Instance("builtins.str"),
    "headers": collection("dict", Instance("builtins.str")),
}
_PATH = "pathlib.Path"


def attribute(base: Value, name: str, node: ast.AST, scope: Scope, checker: Checker) -> Value:
    """Return the possible values of an attribute, and report one that a handler must not read."""
    if name == "__call__":
        return base
    return join(*(_attribute(each, name, node, scope, checker) for each in options(base)))


def check_read(value: Value, node: ast.AST, scope: Scope, checker: Checker) -> None:
    """Report a name of a library that a handler must not read."""
    for option in options(value):
        if isinstance(option, External) and (code := names.read(option.name)):
            checker.report(code, node, scope, option.name)


def _attribute(value: Value, name: str, node: ast.AST, scope: Scope, checker: Checker) -> Value:
    match value:
        case External():
            return _of_external(value, name, node, scope, checker)
        case Instance():
            if value.of == CONTEXT and name == "random":
                checker.report("CM206", node, scope, "context.random")
            return _of_instance(value, name)
        case Package():
            return value if name == "__dict__" else in_package(value.module, name, checker)
        case Object():
            found = members.of_object(value, name, node, checker)
            is_unowned = isinstance(found, Method) and found.owner is None
            return owned(found, value.owner) if is_unowned else found
        case Class():
            return members.of_class(value, name, checker)
        case Super():
            return members.of_super(value, name, checker)
        case Method():
            return Method(Value(owner=value.owner), name, owner=value.owner)
        case _:
            return Method(value, name, owner=value.owner)


def _of_external(value: External, name: str, node: ast.AST, scope: Scope, checker: Checker) -> Value:
    if name == "__dict__":
        return External(f"{value.name}.__dict__")
    found = External(names.canonical(f"{value.name}.{name}"))
    check_read(found, node, scope, checker)
    return found


def _of_instance(value: Instance, name: str) -> Value:
    if value.of == CONTEXT and name in _OF_CONTEXT:
        return _OF_CONTEXT[name]
    if value.of == _PATH and name in ("parent", "parents"):
        return value if name == "parent" else collection("tuple", value)
    if name == "__class__":
        return External(value.of)
    return Method(value, name, owner=value.owner)
