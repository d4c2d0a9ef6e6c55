"""Calls: those of the user's functions and classes are followed, all others are looked up."""

from __future__ import annotations

import ast

from handlers.lint.checker import Checker
from handlers.lint.hazards import order
from handlers.lint.interpreter import external, functions, methods, models
from handlers.lint.interpreter.callbacks import call_back
from handlers.lint.resolution import attributes, members
from handlers.lint.values import (
    UNKNOWN,
    Accessor,
    Arguments,
    Class,
    External,
    Function,
    Instance,
    Method,
    Object,
    Partial,
    Scope,
    Value,
    element_of,
    options,
)

_RECORDING = frozenset({"capture", "store_document"})
"""The methods of a context that record what a function returns."""


def evaluate_call(node: ast.Call, scope: Scope, checker: Checker) -> Value:
    """Return the possible results of a call in the source."""
    callee = checker.evaluate(node.func, scope)
    if _is_recorded(callee):
        return _recorded(node, scope, checker)
    arguments = _arguments(node, scope, checker, is_indifferent=order.is_indifferent(callee))
    return checker.call(callee, arguments, node, scope)


def call(callee: Value, arguments: Arguments, node: ast.AST, scope: Scope, checker: Checker) -> Value:
    """Return the possible results of calling one value."""
    match callee:
        case Function():
            return functions.call_function(callee, arguments, checker)
        case Class():
            return models.instantiate(callee, arguments, node, scope, checker)
        case Object():
            method = members.of_object(callee, "__call__", node, checker)
            return UNKNOWN if isinstance(method, Method) else checker.call(method, arguments, node, scope)
        case External():
            return external.call(callee, arguments, node, scope, checker)
        case Method():
            order.check_method(callee, arguments, node, scope, checker)
            call_back(arguments, element_of(callee.receiver), node, scope, checker)
            return methods.call_method(callee, arguments, node, scope, checker)
        case Partial():
            return checker.call(callee.function, arguments.after(*callee.positional), node, scope)
        case Accessor():
            return _call_accessor(callee, arguments, node, scope, checker)
        case _:
            call_back(arguments, UNKNOWN, node, scope, checker)
            return UNKNOWN


def _call_accessor(
    accessor: Accessor, arguments: Arguments, node: ast.AST, scope: Scope, checker: Checker
) -> Value:
    found = arguments.first()
    for name in accessor.name.split("."):
        found = attributes.attribute(found, name, node, scope, checker)
    return checker.call(found, Arguments(), node, scope) if accessor.calls else found


def _is_recorded(callee: Value) -> bool:
    return any(
        isinstance(each, Method)
        and each.name in _RECORDING
        and isinstance(each.receiver, Instance)
        and each.receiver.of == attributes.CONTEXT
        for each in options(callee)
    )


def _recorded(node: ast.Call, scope: Scope, checker: Checker) -> Value:
    """Follow only the calls that make the function that is given: what it does itself is recorded, and so allowed."""
    for argument in (*node.args, *(keyword.value for keyword in node.keywords)):
        if isinstance(argument, ast.Call):
            callee = checker.quietly(argument.func, scope)
            is_partial = isinstance(callee, External) and callee.name == "functools.partial"
            for each in argument.args[1:] if is_partial else [argument]:
                checker.evaluate(each, scope)
    return UNKNOWN


def _arguments(node: ast.Call, scope: Scope, checker: Checker, *, is_indifferent: bool) -> Arguments:
    positional: list[Value] = []
    is_open = False
    for argument in node.args:
        if isinstance(argument, ast.Starred):
            given = checker.evaluate(argument.value, scope)
            if not is_indifferent:
                order.check_iteration(given, argument, scope, checker)
            is_open = True
        elif is_indifferent:
            positional.append(order.orderless(argument, scope, checker))
        else:
            positional.append(checker.evaluate(argument, scope))
    named = []
    for keyword in node.keywords:
        value = checker.evaluate(keyword.value, scope)
        if keyword.arg is None:
            is_open = True
        else:
            named.append((keyword.arg, value))
    return Arguments(tuple(positional), tuple(named), is_open)
