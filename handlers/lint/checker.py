"""The checker: follows source from a handler's method on, and notes what breaks a rule on the way.

It keeps what all parts of the linter share: the calls that lead to where it is, what was found, and what is known
of names and calls that it has seen already.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import sys
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from handlers.lint import calls, classes, decorators, expressions, names, statements
from handlers.lint.annotations import annotated
from handlers.lint.arguments import Arguments
from handlers.lint.bindings import Assigned, Binding, Imported
from handlers.lint.definitions import ClassDefinition, FunctionDefinition, FunctionNode, Scope
from handlers.lint.finding import Finding
from handlers.lint.modules import Library, SourceModule
from handlers.lint.values import (
    UNKNOWN,
    Class,
    Collection,
    Constant,
    Function,
    Instance,
    Object,
    Outside,
    Owner,
    Package,
    Value,
    element_of,
    join,
    options,
    owned,
)

_KEPT = (Collection, Object, Instance)
_DEEPEST = 30
_RE_ENTRIES = 2
_ONLY_LATER = frozenset({"CM801", "CM802", "CM803", "CM808"})
_OWN_STARS = frozenset({names.FRAMEWORK, "pydantic"})


@dataclass
class Checker:
    """What is known so far. Nothing of the user's is imported or run."""

    library: Library
    findings: dict[Hashable, Finding] = field(default_factory=dict)
    known: dict[Hashable, Value] = field(default_factory=dict)
    counts: dict[Hashable, int] = field(default_factory=dict)
    _calls: list[tuple[str, ast.AST]] = field(default_factory=list)
    _scopes: dict[SourceModule, Scope] = field(default_factory=dict)
    _classes: dict[ast.ClassDef, ClassDefinition] = field(default_factory=dict)
    _functions: dict[ast.AST, FunctionDefinition] = field(default_factory=dict)
    _mros: dict[ClassDefinition, list[ClassDefinition | str]] = field(default_factory=dict)
    _quiet: int = 0
    _importing: int = 0

    @property
    def mode(self) -> Hashable:
        """What is reported: what was followed in one mode may have to be followed again in another."""
        return self._quiet > 0, self._importing > 0

    def evaluate(self, node: ast.expr, scope: Scope) -> Value:
        """Return what an expression may give, and report what is wrong in it."""
        return expressions.evaluate(node, scope, self)

    def quietly(self, node: ast.expr, scope: Scope) -> Value:
        """Return what an expression may give."""
        with self.silence():
            return self.evaluate(node, scope)

    def execute(self, body: list[ast.stmt], scope: Scope) -> None:
        """Follow statements."""
        statements.execute_all(body, scope, self)

    def call(self, callee: Value, arguments: Arguments, node: ast.AST, scope: Scope) -> Value:
        """Return what a call may give, and report what is wrong in what is called."""
        return join(*(calls.call(each, arguments, node, scope, self) for each in options(callee)))

    def annotated(self, node: ast.expr | None, scope: Scope) -> Value:
        """Return what a name of this annotation holds."""
        return annotated(node, scope, self)

    def report(self, code: str, node: ast.AST, scope: Scope, what: str) -> None:
        """Note that a rule is broken, once for each place."""
        if self._quiet or (self._importing and code in _ONLY_LATER):
            return
        line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0) + 1
        key = (scope.module.path, line, column, code)
        if key not in self.findings:
            chain = tuple(label for label, _ in self._calls)
            self.findings[key] = Finding(scope.module.path, line, column, code, what, chain)

    @contextmanager
    def silence(self) -> Iterator[None]:
        """Report nothing within the block."""
        self._quiet += 1
        try:
            yield
        finally:
            self._quiet -= 1

    @contextmanager
    def importing(self) -> Iterator[None]:
        """Follow within the block what happens while modules are imported, when changing them is in order."""
        self._importing += 1
        try:
            yield
        finally:
            self._importing -= 1

    @contextmanager
    def within(self, label: str, node: ast.AST, module: SourceModule) -> Iterator[None]:
        """Let what is reported within the block be reached through a function or name."""
        first = getattr(self, "_first_module", None)
        if not self._calls:
            self._first_module = first = module
        prefix = "" if module is first else f"{module.name.rpartition('.')[2]}."
        self._calls.append((f"{prefix}{label}", node))
        try:
            yield
        finally:
            self._calls.pop()

    def is_too_deep(self, node: ast.AST) -> bool:
        """Whether a function calls itself again, or the calls go too deep to be followed."""
        return len(self._calls) >= _DEEPEST or sum(each is node for _, each in self._calls) >= _RE_ENTRIES

    def module_scope(self, module: SourceModule) -> Scope:
        """Return the scope at the top of a module."""
        return self._scopes.setdefault(module, Scope(module))

    def lookup(self, name: str, scope: Scope) -> Value | None:
        """Return what a name holds, None when it is nowhere to be found."""
        found = scope.local(name)
        if found is None and scope.body_of is not None:
            found = self._in_body(name, scope.body_of)
        if found is None:
            found = self.top_name(name, scope.module)
        if found is None and hasattr(builtins, name):
            return Outside(f"builtins.{name}")
        return found

    def top_name(self, name: str, module: SourceModule) -> Value | None:
        """Return what a name at the top of a module holds, None when there is none."""
        key = ("name", module, name, self.mode)
        if key not in self.known:
            self.known[key] = UNKNOWN  # for a name that is defined by itself
            bound = module.bindings.names.get(name)
            value = self.bound(name, bound, self.module_scope(module), Owner.MODULE) if bound else None
            value = value or self._from_stars(name, module)
            if value is None:
                del self.known[key]
                return None
            self.known[key] = value
        return self.known[key]

    def bound(self, name: str, bindings: list[Binding], scope: Scope, owner: Owner | None) -> Value:
        """Return what a name of a module or class body holds, by all that binds it."""
        return join(*(self._binding(name, each, scope, owner) for each in bindings))

    def imported(self, binding: Imported, module: SourceModule) -> Value:
        """Return what an import binds."""
        if binding.level:
            found = self.library.near(module, binding.module, binding.level)
            if found is None:
                return UNKNOWN
        else:
            found = self.library.find(binding.module)
            if found is None:
                dotted = ".".join(filter(None, (binding.module, binding.attribute)))
                return Outside(names.canonical(dotted))
        return Package(found) if binding.attribute is None else self.in_package(found, binding.attribute)

    def in_package(self, module: SourceModule, name: str) -> Value:
        """Return an attribute of a module of the user's."""
        found = self.top_name(name, module)
        if found is not None:
            return found
        inside = self.library.inside(module, name)
        return Package(inside) if inside else UNKNOWN

    def alias(self, name: str, scope: Scope) -> Value:
        """Return an instance of the type that a name at the top of a module stands for."""
        for binding in scope.module.bindings.names.get(name, ()):
            if (
                isinstance(binding, Assigned)
                and binding.value is not None
                and not self.is_too_deep(binding.value)
            ):
                with self.within(name, binding.value, scope.module):
                    return self.annotated(binding.value, self.module_scope(scope.module))
        return UNKNOWN

    def class_of(self, node: ast.ClassDef, scope: Scope) -> ClassDefinition:
        """Return the definition of a class, the same one each time."""
        return self._classes.setdefault(node, ClassDefinition(node, scope))

    def mro(self, definition: ClassDefinition) -> list[ClassDefinition | str]:
        """Return a class and its bases, those that are not the user's by name."""
        if definition not in self._mros:
            self._mros[definition] = classes.mro(definition, self)
        return self._mros[definition]

    def _in_body(self, name: str, definition: ClassDefinition) -> Value | None:
        """Return what a name of a class body holds, for what else stands in that body."""
        found = [
            Function(definition.function(binding))
            if isinstance(binding, FunctionNode)
            else self._binding(name, binding, definition.body_scope, Owner.CLASS)
            for binding in definition.bindings.names.get(name, ())
        ]
        return join(*found) if found else None

    def _binding(self, name: str, binding: Binding, scope: Scope, owner: Owner | None) -> Value:
        if isinstance(binding, Imported):
            return self.imported(binding, scope.module)
        if isinstance(binding, ast.ClassDef):
            return Class(self.class_of(binding, scope))
        if isinstance(binding, FunctionNode):
            definition = self._functions.setdefault(binding, FunctionDefinition(binding, scope))
            return decorators.decorated(Function(definition), scope, self)
        return self._assigned(name, binding, scope, owner)

    def _assigned(self, name: str, binding: Assigned, scope: Scope, owner: Owner | None) -> Value:
        value = self.annotated(binding.annotation, scope)
        if binding.value is not None and not self.is_too_deep(binding.value):
            with self.within(name, binding.value, scope.module), self.importing():
                given = self.evaluate(binding.value, scope)
            given = element_of(given) if binding.is_part else given
            value = (
                join(given, value)
                if isinstance(given, Constant)
                else join(given)
                if given != UNKNOWN
                else value
            )
        return join(
            *(
                owned(each, owner) if isinstance(each, _KEPT) or type(each) is Value else each
                for each in options(value)
            )
        )

    def _from_stars(self, name: str, module: SourceModule) -> Value | None:
        for star in module.bindings.stars:
            source = (
                self.library.near(module, star.module, star.level)
                if star.level
                else self.library.find(star.module)
            )
            if source is not None:
                found = self.top_name(name, source)
                if found is not None:
                    return found
            elif name in _public_names(star.module):
                return Outside(names.canonical(f"{star.module}.{name}"))
        return None


def _public_names(module: str) -> frozenset[str]:
    """Return what a star imports from a module for which there are rules, or that this package imports itself."""
    top = module.partition(".")[0]
    if top not in _OWN_STARS and top not in names.STAR_MODULES & sys.stdlib_module_names:
        return frozenset()
    try:
        found = vars(importlib.import_module(module))
    except ImportError:  # there are modules for other operating systems
        return frozenset()
    return frozenset(found.get("__all__", [name for name in found if not name.startswith("_")]))
