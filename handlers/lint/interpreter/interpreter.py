"""The interpreter: a checker that follows source, with the parts of this package, which call each other through it."""

from __future__ import annotations

import ast

from handlers.lint.checker import Checker
from handlers.lint.interpreter import calls, expressions, statements
from handlers.lint.values import Arguments, Scope, Value, join, options


class Interpreter(Checker):
    """A checker that follows expressions, statements and calls."""

    def evaluate(self, node: ast.expr, scope: Scope) -> Value:
        """Return the possible values of an expression, and report what is wrong in it."""
        return expressions.evaluate(node, scope, self)

    def execute(self, body: list[ast.stmt], scope: Scope) -> None:
        """Follow statements, and report what is wrong in them."""
        statements.execute_all(body, scope, self)

    def call(self, callee: Value, arguments: Arguments, node: ast.AST, scope: Scope) -> Value:
        """Return the possible results of a call, and report what is wrong in what is called."""
        return join(*(calls.call(each, arguments, node, scope, self) for each in options(callee)))
