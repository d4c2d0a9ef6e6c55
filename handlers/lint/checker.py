"""The checker: what all parts of the linter share while they follow source.

It holds the modules and definitions seen so far, the chain of calls that leads to the present place, and what was
found. Following is recursive: an expression holds calls, a call is of a function, a function has statements, and
statements hold expressions. So `evaluate`, `execute` and `call` are abstract here, and the parts below call each
other through them; `interpreter.Interpreter` implements them.
"""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator
from contextlib import contextmanager

from handlers.lint.rules import Finding, excerpt
from handlers.lint.source import FunctionNode, Modules, SourceModule
from handlers.lint.values import Arguments, ClassDefinition, FunctionDefinition, Scope, Value

_DEEPEST = 30
_RE_ENTRIES = 2
_ALLOWED_AT_IMPORT = frozenset({"CM801", "CM802", "CM803", "CM808"})


class Checker(ABC):
    """What is known so far. Nothing of the user's is imported or run.

    `known` holds the values of names and calls that were followed already, and `counts` how often.
    """

    def __init__(self, modules: Modules) -> None:
        self.modules = modules
        self.findings: dict[Hashable, Finding] = {}
        self.known: dict[Hashable, Value] = {}
        self.counts: dict[Hashable, int] = {}
        self._chain: list[tuple[str, ast.AST]] = []
        self._first_module: SourceModule | None = None
        self._scopes: dict[SourceModule, Scope] = {}
        self._classes: dict[ast.ClassDef, ClassDefinition] = {}
        self._functions: dict[ast.AST, FunctionDefinition] = {}
        self._quiet = 0
        self._importing = 0

    @abstractmethod
    def evaluate(self, node: ast.expr, scope: Scope) -> Value:
        """Return the possible values of an expression, and report what is wrong in it."""

    @abstractmethod
    def execute(self, body: list[ast.stmt], scope: Scope) -> None:
        """Follow statements, and report what is wrong in them."""

    @abstractmethod
    def call(self, callee: Value, arguments: Arguments, node: ast.AST, scope: Scope) -> Value:
        """Return the possible results of a call, and report what is wrong in what is called."""

    def quietly(self, node: ast.expr, scope: Scope) -> Value:
        """Return the possible values of an expression, and report nothing."""
        self._quiet += 1
        try:
            return self.evaluate(node, scope)
        finally:
            self._quiet -= 1

    def report(self, code: str, node: ast.AST, scope: Scope, what: str | None = None) -> None:
        """Report a broken rule, once for each place; `what` is the source of the node unless it is given."""
        if self._quiet or (self._importing and code in _ALLOWED_AT_IMPORT):
            return
        line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0) + 1
        key = (scope.module.path, line, column, code)
        if key not in self.findings:
            chain = tuple(label for label, _ in self._chain)
            what = excerpt(node) if what is None else what
            self.findings[key] = Finding(scope.module.path, line, column, code, what, chain)

    @property
    def mode(self) -> Hashable:
        """What is reported now: what was followed in one mode may have to be followed again in another."""
        return self._quiet > 0, self._importing > 0

    @contextmanager
    def importing(self) -> Iterator[None]:
        """Follow within the block what runs while modules are imported, when changing them is allowed."""
        self._importing += 1
        try:
            yield
        finally:
            self._importing -= 1

    @contextmanager
    def within(self, label: str, node: ast.AST, module: SourceModule) -> Iterator[None]:
        """Add a function or name to the chain of calls within the block."""
        if not self._chain:
            self._first_module = module
        prefix = "" if module is self._first_module else f"{module.name.rpartition('.')[2]}."
        self._chain.append((f"{prefix}{label}", node))
        try:
            yield
        finally:
            self._chain.pop()

    def is_too_deep(self, node: ast.AST) -> bool:
        """Return whether a function calls itself again, or the calls go too deep to be followed."""
        return len(self._chain) >= _DEEPEST or sum(each is node for _, each in self._chain) >= _RE_ENTRIES

    def module_scope(self, module: SourceModule) -> Scope:
        """Return the scope at the top of a module, the same one each time."""
        return self._scopes.setdefault(module, Scope(module))

    def class_of(self, node: ast.ClassDef, scope: Scope) -> ClassDefinition:
        """Return the definition of a class, the same one each time."""
        return self._classes.setdefault(node, ClassDefinition(node, scope))

    def function_of(self, node: FunctionNode, scope: Scope) -> FunctionDefinition:
        """Return the definition of a function at the top of a module or class, the same one each time."""
        return self._functions.setdefault(node, FunctionDefinition(node, scope))
