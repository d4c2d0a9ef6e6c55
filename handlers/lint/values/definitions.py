"""Definitions of the user's: functions and classes, with the scope that contains them."""

from __future__ import annotations

import ast
from functools import cached_property

from handlers.lint.source.bindings import Bindings, FunctionNode, bindings_of
from handlers.lint.source.modules import SourceModule
from handlers.lint.values.value import Value


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
        """Return the value of a name in this or an enclosing scope, None when none of them has it."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names and name not in scope.globals:
                return scope.names[name]
            if name in scope.globals:
                return None
            scope = scope.parent
        return None

    def bind(self, name: str, value: Value) -> None:
        """Bind a name to a value from here on."""
        scope: Scope | None = self.parent if name in self.nonlocals else self
        while scope is not None and name in self.nonlocals and name not in scope.names:
            scope = scope.parent
        (scope or self).names[name] = value

    def is_global(self, name: str) -> bool:
        """Return whether this or an enclosing scope declares a name `global`."""
        return name in self.globals or (self.parent is not None and self.parent.is_global(name))


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
        """The module that contains it."""
        return self.scope.module

    @property
    def is_shared(self) -> bool:
        """Whether it is defined at the top of a module or class, so that all messages share it."""
        return self.scope.function is None

    @property
    def decorators(self) -> list[ast.expr]:
        """Its decorators, the uppermost first."""
        return [] if isinstance(self.node, ast.Lambda) else self.node.decorator_list

    @cached_property
    def is_generator(self) -> bool:
        """Whether calling it returns an iterator."""
        pending: list[ast.AST] = list(ast.iter_child_nodes(self.node))
        while pending:
            node = pending.pop()
            if isinstance(node, ast.Yield | ast.YieldFrom):
                return True
            if not isinstance(node, FunctionNode | ast.ClassDef):
                pending.extend(ast.iter_child_nodes(node))
        return False


class ClassDefinition:
    """A class of the user's. `mro` is filled in when its bases are first looked up."""

    def __init__(self, node: ast.ClassDef, scope: Scope) -> None:
        self.node = node
        self.scope = scope
        self.name = node.name
        self.mro: tuple[ClassDefinition | str, ...] = ()
        self._functions: dict[ast.AST, FunctionDefinition] = {}

    @property
    def module(self) -> SourceModule:
        """The module that contains it."""
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
        """Return a method by its syntax tree, the same definition each time."""
        return self._functions.setdefault(node, FunctionDefinition(node, self.scope, self))
