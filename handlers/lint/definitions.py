"""Definitions of the user's: functions and classes, with the scope in which they stand."""

from __future__ import annotations

import ast
from functools import cached_property

from handlers.lint.bindings import Bindings, bindings_of
from handlers.lint.modules import SourceModule
from handlers.lint.values import Value

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


class Scope:
    """The names of a module, class body or function while it is followed."""

    def __init__(
        self, module: SourceModule, parent: Scope | None = None, *, function: FunctionDefinition | None = None
    ) -> None:
        self.module = module
        self.parent = parent
        self.function = function
        self.body_of: ClassDefinition | None = None
        self.names: dict[str, Value] = {}
        self.globals: set[str] = set()
        self.nonlocals: set[str] = set()
        self.returned: list[Value] = []
        self.yielded: list[Value] = []

    def child(self) -> Scope:
        """Return a scope within this one, of the same function: that of a comprehension."""
        return Scope(self.module, self, function=self.function)

    def local(self, name: str) -> Value | None:
        """Return what a name of this or an enclosing scope holds, None when it is none of theirs."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names and name not in scope.globals:
                return scope.names[name]
            if name in scope.globals:
                return None
            scope = scope.parent
        return None

    def bind(self, name: str, value: Value) -> None:
        """Let a name hold a value from here on."""
        scope: Scope | None = self.parent if name in self.nonlocals else self
        while scope is not None and name in self.nonlocals and name not in scope.names:
            scope = scope.parent
        (scope or self).names[name] = value


class FunctionDefinition:
    """A function, method or lambda of the user's."""

    def __init__(self, node: FunctionNode, scope: Scope, owner: ClassDefinition | None = None) -> None:
        self.node = node
        self.scope = scope
        self.owner = owner
        own_name = "lambda" if isinstance(node, ast.Lambda) else node.name
        self.name = f"{owner.name}.{own_name}" if owner else own_name

    @property
    def module(self) -> SourceModule:
        """The module in which it stands."""
        return self.scope.module

    @property
    def is_kept(self) -> bool:
        """Whether it stands at the top of a module or class, so that it is the same one for all messages."""
        return self.scope.function is None

    @property
    def decorators(self) -> list[ast.expr]:
        """Its decorators, the uppermost first."""
        return [] if isinstance(self.node, ast.Lambda) else self.node.decorator_list

    @cached_property
    def is_generator(self) -> bool:
        """Whether calling it gives an iterator."""
        pending: list[ast.AST] = list(ast.iter_child_nodes(self.node))
        while pending:
            node = pending.pop()
            if isinstance(node, ast.Yield | ast.YieldFrom):
                return True
            if not isinstance(node, FunctionNode | ast.ClassDef):
                pending.extend(ast.iter_child_nodes(node))
        return False


class ClassDefinition:
    """A class of the user's."""

    def __init__(self, node: ast.ClassDef, scope: Scope) -> None:
        self.node = node
        self.scope = scope
        self.name = node.name
        self.functions: dict[ast.AST, FunctionDefinition] = {}

    @property
    def module(self) -> SourceModule:
        """The module in which it stands."""
        return self.scope.module

    @cached_property
    def bindings(self) -> Bindings:
        """The names of its body."""
        return bindings_of(self.node.body)

    @cached_property
    def body_scope(self) -> Scope:
        """The scope of its body, which its methods do not see."""
        scope = Scope(self.module, self.scope)
        scope.body_of = self
        return scope

    def function(self, node: FunctionNode) -> FunctionDefinition:
        """Return a method by its syntax tree."""
        if node not in self.functions:
            self.functions[node] = FunctionDefinition(node, self.scope, self)
        return self.functions[node]
