"""Callbacks: functions among the arguments of a call, which the function that gets them may call."""

from __future__ import annotations

import ast

from handlers.lint import names
from handlers.lint.checker import Checker
from handlers.lint.values import UNKNOWN, Arguments, External, Function, Partial, Scope, Value, join, options


def call_back(arguments: Arguments, given: Value, node: ast.AST, scope: Scope, checker: Checker) -> Value:
    """Follow the functions among the arguments, each called with a value; return what they may return."""
    results = [
        checker.call(option, Arguments((given,), is_open=True), node, scope)
        for argument in arguments
        for option in options(argument)
        if isinstance(option, Function | Partial)
        or (isinstance(option, External) and names.called(option.name) is not None)
    ]
    return join(*results) if results else UNKNOWN
