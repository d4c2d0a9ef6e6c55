"""Members of the user's classes: the values of attributes of an instance, of a class, and of `super()`."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from handlers.lint.checker import Checker
from handlers.lint.resolution.annotations import annotated
from handlers.lint.resolution.classes import MODELS, is_a, is_record, marks_of, members, mro, users_mro
from handlers.lint.resolution.decorators import decorated
from handlers.lint.resolution.lookup import bound
from handlers.lint.source.bindings import Assigned, Binding, FunctionNode
from handlers.lint.values import (
    Arguments,
    Class,
    ClassDefinition,
    Constant,
    External,
    Function,
    Method,
    Object,
    Owner,
    Scope,
    Super,
    Value,
    collection,
    join,
    owned,
)

_GETTERS = frozenset(
    {"builtins.property", "functools.cached_property", "pydantic.computed_field", "typing.override"}
)


def of_object(value: Object, name: str, node: ast.AST, checker: Checker) -> Value:
    """Return the value of an instance's attribute, and follow the property that computes it."""
    if name == "__class__":
        return Class(value.definition)
    if name == "__dict__":
        return owned(collection("dict"), value.owner)
    found = [
        _of_object(value, base, binding, node, checker)
        for base, binding in members(value.definition, name, checker)
    ]
    if not found or isinstance(found[0], Constant):
        found += _assigned_by_methods(value, name, checker)
    return join(*found) if found else _inherited(value, name, checker)


def of_class(value: Class, name: str, checker: Checker) -> Value:
    """Return the value of a class's attribute."""
    found = [
        _of_class(value, base, binding, name, checker)
        for base, binding in members(value.definition, name, checker)
    ]
    return join(*found) if found else _inherited(value, name, checker)


def of_super(value: Super, name: str, checker: Checker) -> Value:
    """Return the value of an attribute of the bases after a class."""
    owner = value.bound.definition if isinstance(value.bound, Object | Class) else value.after
    bases = mro(owner, checker)
    after = bases[bases.index(value.after) + 1 :] if value.after in bases else ()
    for base in after:
        if isinstance(base, ClassDefinition):
            for binding in base.bindings.names.get(name, ()):
                if isinstance(binding, FunctionNode):
                    return Function(base.function(binding), value.bound)
        elif base != "builtins.object":
            break
    return Method(value.bound, name)


def _of_object(
    value: Object, base: ClassDefinition, binding: Binding, node: ast.AST, checker: Checker
) -> Value:
    if isinstance(binding, FunctionNode):
        marks = marks_of(base, binding, checker)
        method = Function(base.function(binding), _receiver(value, marks))
        function = decorated(method, base.scope, checker)
        if _GETTERS.intersection(marks) or any(mark.endswith("cached_property") for mark in marks):
            return checker.call(method, Arguments(), node, base.scope)
        return function
    if isinstance(binding, Assigned) and binding.annotation is not None and is_record(base, checker):
        return owned(annotated(binding.annotation, base.body_scope, checker), value.owner)
    return bound("", binding, base.body_scope, Owner.CLASS, checker)


def _of_class(value: Class, base: ClassDefinition, binding: Binding, name: str, checker: Checker) -> Value:
    if isinstance(binding, FunctionNode):
        receiver = value if "builtins.classmethod" in marks_of(base, binding, checker) else None
        return decorated(Function(base.function(binding), receiver), base.scope, checker)
    if is_a(value.definition, "enum.Enum", checker):
        return Object(value.definition)
    return bound(name, binding, base.body_scope, Owner.CLASS, checker)


def _receiver(value: Object, marks: list[str]) -> Value | None:
    if "builtins.staticmethod" in marks:
        return None
    return Class(value.definition) if "builtins.classmethod" in marks else value


def _assigned_by_methods(value: Object, name: str, checker: Checker) -> list[Value]:
    """Return what the methods of a class assign to an attribute of their first argument."""
    return [
        owned(each, value.owner)
        for base in users_mro(value.definition, checker)
        for method in base.node.body
        if isinstance(method, ast.FunctionDef)
        for each in _assigned_in(method, base, name, checker)
    ]


def _assigned_in(
    method: ast.FunctionDef, base: ClassDefinition, name: str, checker: Checker
) -> Iterator[Value]:
    scope = Scope(base.module, base.scope, function=base.function(method))
    for parameter in (*method.args.posonlyargs, *method.args.args, *method.args.kwonlyargs):
        scope.names[parameter.arg] = annotated(parameter.annotation, base.scope, checker)
    for node in ast.walk(method):
        match node:
            case ast.Assign(targets=[ast.Attribute(value=ast.Name(), attr=attribute)], value=assigned):
                if attribute == name and not checker.is_too_deep(node):
                    with checker.within("", node, scope.module):
                        value = checker.quietly(assigned, scope)
                    yield value
            case ast.AnnAssign(target=ast.Attribute(value=ast.Name(), attr=attribute), annotation=annotation):
                if attribute == name:
                    yield annotated(annotation, scope, checker)
            case _:
                pass


def _inherited(value: Object | Class, name: str, checker: Checker) -> Value:
    """Return the value of an attribute that none of the user's classes defines."""
    if isinstance(value, Class):
        for base in mro(value.definition, checker):
            if isinstance(base, str) and base not in {*MODELS, "handlers.Handler"}:
                return External(f"{base}.{name}")
    return Method(value, name)
