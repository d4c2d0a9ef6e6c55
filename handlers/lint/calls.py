"""Calls: of the user's functions and classes, which are followed, and of all others, which are looked up."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import TYPE_CHECKING

from handlers.lint import attributes, classes, functions, methods, models, order, outside
from handlers.lint.arguments import Arguments
from handlers.lint.definitions import Scope
from handlers.lint.values import (
    UNKNOWN,
    Accessor,
    Class,
    Function,
    Instance,
    Method,
    Object,
    Outside,
    Partial,
    Value,
    element_of,
    item_of,
    join,
    options,
)

if TYPE_CHECKING:
    from handlers.lint.checker import Checker


def evaluate_call(node: ast.Call, scope: Scope, checker: Checker) -> Value:
    """Return what a call in the source may give."""
    callee = checker.evaluate(node.func, scope)
    if _is_capture(callee):
        return _capture(node, scope, checker)
    is_indifferent = order.is_indifferent(callee)
    arguments = _arguments(node, scope, checker, is_indifferent=is_indifferent)
    return checker.call(callee, arguments, node, scope)


def call(callee: Value, arguments: Arguments, node: ast.AST, scope: Scope, checker: Checker) -> Value:
    """Return what calling one thing may give."""
    return _BY_TYPE.get(type(callee), _call_unknown)(callee, arguments, node, scope, checker)


def call_back(arguments: Arguments, given: Value, node: ast.AST, scope: Scope, checker: Checker) -> Value:
    """Follow the functions among the arguments: whoever gets them may call them."""
    results = [
        checker.call(option, Arguments((given,), is_open=True), node, scope)
        for argument in arguments
        for option in options(argument)
        if isinstance(option, Function | Partial) or outside.breaks_a_rule(option)
    ]
    return join(*results) if results else UNKNOWN


def _is_capture(callee: Value) -> bool:
    return any(
        isinstance(each, Method)
        and each.name == "capture"
        and isinstance(each.receiver, Instance)
        and each.receiver.of == attributes.CONTEXT
        for each in options(callee)
    )


def _capture(node: ast.Call, scope: Scope, checker: Checker) -> Value:
    """Look at a capture: what its function does is allowed, what is called to make that function is not."""
    given = [*node.args, *(keyword.value for keyword in node.keywords)]
    for argument in given:
        if isinstance(argument, ast.Call):
            callee = checker.quietly(argument.func, scope)
            is_partial = isinstance(callee, Outside) and callee.name == "functools.partial"
            inner = argument.args[1:] if is_partial else [argument]
            for each in inner:
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
            value = item_of(value)
        else:
            named.append((keyword.arg, value))
    return Arguments(tuple(positional), tuple(named), is_open)


def _call_function(
    value: Value, arguments: Arguments, _node: ast.AST, _scope: Scope, checker: Checker
) -> Value:
    if not isinstance(value, Function):
        return UNKNOWN
    return functions.call_function(value, arguments, checker)


def _call_class(value: Value, arguments: Arguments, node: ast.AST, scope: Scope, checker: Checker) -> Value:
    return models.instantiate(value, arguments, node, scope, checker) if isinstance(value, Class) else UNKNOWN


def _call_object(value: Value, arguments: Arguments, node: ast.AST, scope: Scope, checker: Checker) -> Value:
    if not isinstance(value, Object):
        return UNKNOWN
    method = classes.attribute_of_object(value, "__call__", node, checker)
    return UNKNOWN if isinstance(method, Method) else checker.call(method, arguments, node, scope)


def _call_outside(value: Value, arguments: Arguments, node: ast.AST, scope: Scope, checker: Checker) -> Value:
    return outside.call(value, arguments, node, scope, checker) if isinstance(value, Outside) else UNKNOWN


def _call_method(value: Value, arguments: Arguments, node: ast.AST, scope: Scope, checker: Checker) -> Value:
    if not isinstance(value, Method):
        return UNKNOWN
    order.check_method(value, arguments, node, scope, checker)
    call_back(arguments, element_of(value.receiver), node, scope, checker)
    return methods.call(value, arguments, node, scope, checker)


def _call_partial(value: Value, arguments: Arguments, node: ast.AST, scope: Scope, checker: Checker) -> Value:
    if not isinstance(value, Partial):
        return UNKNOWN
    return checker.call(value.function, arguments.after(*value.positional), node, scope)


def _call_accessor(
    value: Value, arguments: Arguments, node: ast.AST, scope: Scope, checker: Checker
) -> Value:
    if not isinstance(value, Accessor):
        return UNKNOWN
    found = arguments.first()
    for name in value.name.split("."):
        found = attributes.attribute(found, name, node, scope, checker)
    return checker.call(found, Arguments(), node, scope) if value.calls else found


def _call_unknown(
    _value: Value, arguments: Arguments, node: ast.AST, scope: Scope, checker: Checker
) -> Value:
    call_back(arguments, UNKNOWN, node, scope, checker)
    return UNKNOWN


_BY_TYPE: dict[type[Value], Callable[[Value, Arguments, ast.AST, Scope, Checker], Value]] = {
    Function: _call_function,
    Class: _call_class,
    Object: _call_object,
    Outside: _call_outside,
    Method: _call_method,
    Partial: _call_partial,
    Accessor: _call_accessor,
}
