"""Construction of the user's classes: their constructors, validators and default factories are followed."""

from __future__ import annotations

import ast

from handlers.lint import names
from handlers.lint.checker import Checker
from handlers.lint.resolution.classes import is_record, marks_of, members, mro, users_mro
from handlers.lint.source.bindings import Assigned, FunctionNode
from handlers.lint.values import (
    UNKNOWN,
    Arguments,
    Class,
    ClassDefinition,
    External,
    Function,
    Object,
    Scope,
    Value,
    options,
)

_CONSTRUCTORS = ("__init__", "__post_init__", "model_post_init")
_VALIDATORS = frozenset(
    f"pydantic.{name}"
    for name in (
        "field_validator",
        "model_validator",
        "validator",
        "root_validator",
        "field_serializer",
        "model_serializer",
    )
)
_IN_ANNOTATIONS = ("Validator", "Serializer")
_FACTORIES = ("default_factory", "factory")


def instantiate(class_: Class, arguments: Arguments, node: ast.AST, scope: Scope, checker: Checker) -> Value:
    """Return an instance, and follow what constructs it."""
    definition = class_.definition
    made = Object(definition)
    for name in ("__new__", *_CONSTRUCTORS):
        for base, binding in members(definition, name, checker):
            if isinstance(binding, FunctionNode):
                given = Arguments(is_open=True) if name.endswith("post_init") else arguments
                given = Arguments() if name == "__post_init__" else given
                bound = class_ if name == "__new__" else made
                checker.call(Function(base.function(binding), bound), given, node, scope)
    _call_external_base(definition, arguments, node, scope, checker)
    if is_record(definition, checker):
        check_fields(definition, None if arguments.is_open else frozenset(dict(arguments.named)), checker)
    return made


def check_fields(definition: ClassDefinition, given: frozenset[str] | None, checker: Checker) -> None:
    """Follow the validators of a model, and the default factories of fields that are not given."""
    key = ("fields", definition, given, checker.mode)
    if key in checker.known:
        return
    checker.known[key] = UNKNOWN
    for base in users_mro(definition, checker):
        with checker.within(base.name, base.node, base.module):
            _check_validators(definition, base, checker)
            _check_defaults(base, given or frozenset(), checker)


def check_model(definition: ClassDefinition, checker: Checker) -> None:
    """Follow all that decoding a message or state may call, in nested models too."""
    check_fields(definition, frozenset(), checker)
    for base in users_mro(definition, checker):
        for name in base.bindings.names:
            for _, binding in members(base, name, checker):
                if isinstance(binding, Assigned) and binding.annotation is not None:
                    _check_nested(binding.annotation, base, definition, checker)


def _check_nested(
    annotation: ast.expr, base: ClassDefinition, outer: ClassDefinition, checker: Checker
) -> None:
    for node in ast.walk(annotation):
        if isinstance(node, ast.Name | ast.Attribute):
            for option in options(checker.quietly(node, base.body_scope)):
                key = ("nested", option)
                if isinstance(option, Class) and option.definition is not outer and key not in checker.known:
                    checker.known[key] = UNKNOWN
                    check_model(option.definition, checker)


def _check_validators(definition: ClassDefinition, base: ClassDefinition, checker: Checker) -> None:
    for bindings in base.bindings.names.values():
        for binding in bindings:
            if isinstance(binding, FunctionNode) and _VALIDATORS.intersection(
                marks_of(base, binding, checker)
            ):
                marks = marks_of(base, binding, checker)
                is_static = "builtins.staticmethod" in marks
                receiver = Class(definition) if "builtins.classmethod" in marks else Object(definition)
                function = Function(base.function(binding), None if is_static else receiver)
                checker.call(function, Arguments(is_open=True), binding, base.body_scope)
            if isinstance(binding, Assigned) and binding.annotation is not None:
                _check_annotation(binding.annotation, base.body_scope, checker)


def _check_annotation(annotation: ast.expr, scope: Scope, checker: Checker) -> None:
    """Follow the functions that `Annotated[...]` names."""
    for node in ast.walk(annotation):
        if isinstance(node, ast.Call):
            callee = checker.quietly(node.func, scope)
            if isinstance(callee, External) and callee.name.endswith(_IN_ANNOTATIONS):
                for argument in (*node.args, *(keyword.value for keyword in node.keywords)):
                    _call_back(argument, scope, checker)


def _check_defaults(base: ClassDefinition, given: frozenset[str], checker: Checker) -> None:
    for name, bindings in base.bindings.names.items():
        for binding in bindings:
            if name in given or not isinstance(binding, Assigned) or binding.annotation is None:
                continue
            for node in ast.walk(binding.annotation):
                _check_factories(node, base.body_scope, checker)
            if binding.value is not None and not _check_factories(binding.value, base.body_scope, checker):
                checker.evaluate(binding.value, base.body_scope)


def _check_factories(node: ast.AST, scope: Scope, checker: Checker) -> bool:
    """Follow the factory of a default, and return whether there is one."""
    found = (
        [keyword for keyword in node.keywords if keyword.arg in _FACTORIES]
        if isinstance(node, ast.Call)
        else []
    )
    for keyword in found:
        _call_back(keyword.value, scope, checker)
    return bool(found)


def _call_back(node: ast.expr, scope: Scope, checker: Checker) -> None:
    checker.call(checker.evaluate(node, scope), Arguments(is_open=True), node, scope)


def _call_external_base(
    definition: ClassDefinition, arguments: Arguments, node: ast.AST, scope: Scope, checker: Checker
) -> None:
    has_own = any(True for _ in members(definition, "__init__", checker))
    for base in mro(definition, checker):
        if isinstance(base, str) and not has_own and (names.called(base) or base == "random.Random"):
            checker.call(External(base), arguments, node, scope)
