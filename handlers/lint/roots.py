"""Roots: where the framework calls the user's code, and with which arguments."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from handlers.lint.checker import Checker
from handlers.lint.interpreter.models import check_model
from handlers.lint.resolution import classes, members
from handlers.lint.resolution.annotations import annotated
from handlers.lint.resolution.attributes import CONTEXT
from handlers.lint.source.bindings import FunctionNode
from handlers.lint.source.modules import SourceModule
from handlers.lint.values import (
    UNKNOWN,
    Arguments,
    ClassDefinition,
    Function,
    Instance,
    Object,
    Owner,
    Value,
    collection,
    item_of,
    options,
    owned,
)

_HANDLER = "handlers.Handler"
_ROOTS = frozenset({_HANDLER, "handlers.State", "handlers.Message"})
_MARK = "handlers.handles"


def classes_in(module: SourceModule, checker: Checker) -> Iterator[ClassDefinition]:
    """Yield the classes of a module that are handlers, states or messages."""
    for node in _class_nodes(module.tree.body):
        definition = checker.class_of(node, checker.module_scope(module))
        if not _ROOTS.isdisjoint(classes.mro(definition, checker)):
            yield definition


def is_handler(definition: ClassDefinition, checker: Checker) -> bool:
    """Return whether a class is a handler."""
    return classes.is_a(definition, _HANDLER, checker)


def check_class(definition: ClassDefinition, checker: Checker) -> None:
    """Follow the methods of a handler that handle messages, or all that reading a state or message calls."""
    if not is_handler(definition, checker):
        _check_stored(definition, checker)
        return
    for name, method in _handling(definition, checker):
        _check_method(definition, name, method, checker)


def _class_nodes(body: list[ast.stmt]) -> Iterator[ast.ClassDef]:
    for statement in body:
        if isinstance(statement, ast.ClassDef):
            yield statement
        if not isinstance(statement, FunctionNode):
            for name in ("body", "orelse", "finalbody"):
                yield from _class_nodes(getattr(statement, name, []))


def _handling(definition: ClassDefinition, checker: Checker) -> Iterator[tuple[str, Function]]:
    """Yield the methods that handle messages, those of base classes included."""
    me = Object(definition, owner=Owner.CLASS)
    for base in classes.users_mro(definition, checker):
        for name, bindings in base.bindings.names.items():
            for binding in bindings:
                if isinstance(binding, FunctionNode) and _MARK in classes.marks_of(base, binding, checker):
                    yield name, Function(base.function(binding), me)


def _check_method(definition: ClassDefinition, name: str, method: Function, checker: Checker) -> None:
    node, scope = method.definition.node, method.definition.scope
    given: list[Value] = []
    for parameter, owner in zip(node.args.args[1:], (Owner.STATE, Owner.MESSAGE), strict=False):
        declared = annotated(parameter.annotation, scope, checker)
        if declared == UNKNOWN and owner is Owner.STATE:
            declared = _state_of(definition, checker)
        for option in options(declared):
            if isinstance(option, Object):
                _check_stored(option.definition, checker)
        given.append(owned(declared, owner))
    arguments = Arguments((*given, Instance(CONTEXT)))
    if isinstance(node, ast.AsyncFunctionDef):
        checker.report("CM502", node, scope, f"async def {node.name}")
    me = Object(definition, owner=Owner.CLASS)
    attribute = members.of_object(me, name, node, checker)
    called = [each for each in options(attribute) if isinstance(each, Function)]
    # A name that is bound twice, as by two revisions of a method, is followed as each of its bodies.
    if not any(each.definition is method.definition for each in called):
        called.append(method)
    for each in called:
        checker.call(each, arguments, node, scope)


def _state_of(definition: ClassDefinition, checker: Checker) -> Value:
    """Return the state that a handler names in its base: `Handler[SomeState]`."""
    for base in classes.users_mro(definition, checker):
        for node in base.node.bases:
            if isinstance(node, ast.Subscript):
                return annotated(node.slice, base.scope, checker)
    return UNKNOWN


def _check_stored(definition: ClassDefinition, checker: Checker) -> None:
    """Follow what reading a state or message calls: validators, default factories and upcasters."""
    check_model(definition, checker)
    for keyword in definition.node.keywords:
        if keyword.arg == "upcasters":
            upcasters = item_of(checker.evaluate(keyword.value, definition.scope))
            checker.call(upcasters, Arguments((collection("dict"),)), keyword.value, definition.scope)
