"""Roots: where the framework calls the user's code, and with what."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from handlers.lint import classes, models
from handlers.lint.arguments import Arguments
from handlers.lint.attributes import CONTEXT
from handlers.lint.definitions import ClassDefinition, FunctionDefinition, FunctionNode
from handlers.lint.modules import SourceModule
from handlers.lint.values import (
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

if TYPE_CHECKING:
    from handlers.lint.checker import Checker

_HANDLER = "handlers.Handler"
_STATE = "handlers.State"
_MODELS = (_STATE, "handlers.Message")
_MARK = "handlers.handles"
_UPCASTERS = "upcasters"


def classes_in(module: SourceModule, checker: Checker) -> Iterator[ClassDefinition]:
    """Give the classes of a module that are handlers, states or messages."""
    for node in _class_nodes(module.tree.body):
        definition = checker.class_of(node, checker.module_scope(module))
        bases = checker.mro(definition)
        if any(base in bases for base in (_HANDLER, *_MODELS)):
            yield definition


def is_handler(definition: ClassDefinition, checker: Checker) -> bool:
    """Say whether a class is a handler."""
    return classes.is_a(definition, _HANDLER, checker)


def check_class(definition: ClassDefinition, checker: Checker) -> None:
    """Follow all methods of a handler that handle messages, or all that reading a model from storage calls."""
    if not is_handler(definition, checker):
        models.check_model(definition, checker)
        _check_upcasters(definition, checker)
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
    """Give the methods that handle messages, those of base classes included."""
    me = Object(definition, owner=Owner.CLASS)
    for base in checker.mro(definition):
        if not isinstance(base, ClassDefinition):
            continue
        for name, bindings in base.bindings.names.items():
            for binding in bindings:
                if isinstance(binding, FunctionNode) and _MARK in classes.marks_of(base, binding, checker):
                    yield name, Function(base.function(binding), me)


def _check_method(definition: ClassDefinition, name: str, method: Function, checker: Checker) -> None:
    parameters = method.definition.node.args.args[1:]
    scope = method.definition.scope
    given: list[Value] = []
    for parameter, owner in zip(parameters, (Owner.STATE, Owner.MESSAGE), strict=False):
        declared = checker.annotated(parameter.annotation, scope)
        if declared == Value() and owner is Owner.STATE:
            declared = _state_of(definition, checker)
        _check_models(declared, checker)
        given.append(owned(declared, owner))
    given.append(Instance(CONTEXT))
    me = Object(definition, owner=Owner.CLASS)
    node = method.definition.node
    called = [
        each
        for option in options(classes.attribute_of_object(me, name, node, checker))
        if isinstance(each := option, Function)
    ]
    if isinstance(node, ast.AsyncFunctionDef):
        checker.report("CM502", node, scope, f"async def {node.name}")
    # A name bound twice, as two revisions of one method are, is followed as each of its bodies.
    if not any(each.definition is method.definition for each in called):
        called.append(method)
    for each in called:
        checker.call(each, Arguments(tuple(given)), node, scope)


def _check_models(declared: Value, checker: Checker) -> None:
    for option in options(declared):
        if isinstance(option, Object):
            models.check_model(option.definition, checker)
            _check_upcasters(option.definition, checker)


def _state_of(definition: ClassDefinition, checker: Checker) -> Value:
    """Return the state that a handler names in its base: `Handler[SomeState]`."""
    for base in checker.mro(definition):
        for node in base.node.bases if isinstance(base, ClassDefinition) else ():
            if isinstance(node, ast.Subscript) and isinstance(base, ClassDefinition):
                return checker.annotated(node.slice, base.scope)
    return Value()


def _check_upcasters(definition: ClassDefinition, checker: Checker) -> None:
    for keyword in definition.node.keywords:
        if keyword.arg == _UPCASTERS:
            upcasters = item_of(checker.evaluate(keyword.value, definition.scope))
            checker.call(upcasters, Arguments((collection("dict"),)), keyword.value, definition.scope)


def follow_all(module: SourceModule, checker: Checker) -> int:
    """Follow each function of a module with arguments of which nothing is known, and return how many there are."""
    followed = 0
    for definition in _functions(module, checker):
        me = Object(definition.owner) if definition.owner else None
        checker.call(Function(definition, me), Arguments(is_open=True), definition.node, definition.scope)
        followed += 1
    return followed


def _functions(module: SourceModule, checker: Checker) -> Iterator[FunctionDefinition]:
    scope = checker.module_scope(module)
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ClassDef):
            owner = checker.class_of(node, scope)
            yield from (owner.function(each) for each in node.body if isinstance(each, FunctionNode))
    yield from (
        FunctionDefinition(node, scope) for node in module.tree.body if isinstance(node, FunctionNode)
    )
