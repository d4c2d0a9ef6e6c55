"""Classes of the user's: their bases, their attributes, and what happens when an instance is made."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from handlers.lint import decorators
from handlers.lint.arguments import Arguments
from handlers.lint.bindings import Assigned, Binding
from handlers.lint.definitions import ClassDefinition, FunctionNode, Scope
from handlers.lint.values import (
    Class,
    Constant,
    Function,
    Method,
    Object,
    Outside,
    Owner,
    Super,
    Value,
    collection,
    join,
    options,
    owned,
)

if TYPE_CHECKING:
    from handlers.lint.checker import Checker

_GETTERS = frozenset(
    {"builtins.property", "functools.cached_property", "pydantic.computed_field", "typing.override"}
)
_MODELS = frozenset({"pydantic.BaseModel", "handlers.State", "handlers.Message", "typing.NamedTuple"})


def mro(definition: ClassDefinition, checker: Checker) -> list[ClassDefinition | str]:
    """Return a class and its bases, those that are not the user's by name."""
    found: dict[ClassDefinition | str, None] = {}
    _collect(definition, found, checker)
    return list(found)


def is_a(definition: ClassDefinition, name: str, checker: Checker) -> bool:
    """Say whether a class comes from one that is not the user's."""
    return name in checker.mro(definition)


def is_record(definition: ClassDefinition, checker: Checker) -> bool:
    """Say whether annotated names in the body of a class are fields of its instances."""
    if any(base in _MODELS for base in checker.mro(definition)):
        return True
    marks = [checker.quietly(_called(node), definition.scope) for node in definition.node.decorator_list]
    return any(
        isinstance(mark, Outside) and mark.name.endswith(("dataclass", "attr.s", "define")) for mark in marks
    )


def members(
    definition: ClassDefinition, name: str, checker: Checker
) -> Iterator[tuple[ClassDefinition, Binding]]:
    """Give what a name is bound to in a class, or in the nearest base that has it."""
    for base in checker.mro(definition):
        if isinstance(base, ClassDefinition) and name in base.bindings.names:
            yield from ((base, binding) for binding in base.bindings.names[name])
            return


def attribute_of_object(value: Object, name: str, node: ast.AST, checker: Checker) -> Value:
    """Return an attribute of an instance, and follow the property that gives it."""
    if name == "__class__":
        return Class(value.definition)
    if name == "__dict__":
        return collection("dict") if value.owner is None else owned(collection("dict"), value.owner)
    found = [
        _of_member(value, base, binding, node, checker)
        for base, binding in members(value.definition, name, checker)
    ]
    found += _set_by_methods(value, name, checker) if not found or isinstance(found[0], Constant) else []
    return join(*found) if found else _outside(value, name, checker)


def attribute_of_class(value: Class, name: str, checker: Checker) -> Value:
    """Return an attribute of a class."""
    found = [
        _of_class(value, base, binding, name, checker)
        for base, binding in members(value.definition, name, checker)
    ]
    return join(*found) if found else _outside(value, name, checker)


def attribute_of_super(value: Super, name: str, checker: Checker) -> Value:
    """Return an attribute of the bases of a class."""
    owner = value.bound.definition if isinstance(value.bound, Object | Class) else value.after
    bases = checker.mro(owner)
    after = bases[bases.index(value.after) + 1 :] if value.after in bases else []
    for base in after:
        if isinstance(base, ClassDefinition):
            for binding in base.bindings.names.get(name, ()):
                if isinstance(binding, FunctionNode):
                    return Function(base.function(binding), value.bound)
        elif base != "builtins.object":
            return Method(value.bound, name)
    return Method(value.bound, name)


def marks_of(definition: ClassDefinition, function: ast.AST, checker: Checker) -> list[str]:
    """Return the full names of a method's decorators that are not the user's."""
    nodes = function.decorator_list if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) else []
    values = [checker.quietly(_called(node), definition.body_scope) for node in nodes]
    return [option.name for value in values for option in options(value) if isinstance(option, Outside)]


def _collect(definition: ClassDefinition, found: dict[ClassDefinition | str, None], checker: Checker) -> None:
    if definition in found:
        return
    found[definition] = None
    for node in definition.node.bases:
        base = checker.quietly(node.value if isinstance(node, ast.Subscript) else node, definition.scope)
        for option in options(base):
            if isinstance(option, Class):
                _collect(option.definition, found, checker)
            elif isinstance(option, Outside):
                found[option.name] = None


def _of_member(
    value: Object, base: ClassDefinition, binding: Binding, node: ast.AST, checker: Checker
) -> Value:
    if isinstance(binding, FunctionNode):
        marks = marks_of(base, binding, checker)
        method = Function(base.function(binding), _receiver(value, marks))
        if _GETTERS.intersection(marks) or any(mark.endswith("cached_property") for mark in marks):
            decorators.decorated(method, base.scope, checker)
            return checker.call(method, Arguments(), node, base.scope)
        return decorators.decorated(method, base.scope, checker)
    if isinstance(binding, Assigned) and binding.annotation is not None and is_record(base, checker):
        return owned(checker.annotated(binding.annotation, base.body_scope), value.owner)
    return checker.bound("", [binding], base.body_scope, Owner.CLASS)


def _of_class(value: Class, base: ClassDefinition, binding: Binding, name: str, checker: Checker) -> Value:
    if isinstance(binding, FunctionNode):
        marks = marks_of(base, binding, checker)
        bound = value if "builtins.classmethod" in marks else None
        return decorators.decorated(Function(base.function(binding), bound), base.scope, checker)
    if is_a(value.definition, "enum.Enum", checker):
        return Object(value.definition)
    return checker.bound(name, [binding], base.body_scope, Owner.CLASS)


def _receiver(value: Object, marks: list[str]) -> Value | None:
    if "builtins.staticmethod" in marks:
        return None
    return Class(value.definition) if "builtins.classmethod" in marks else value


def _set_by_methods(value: Object, name: str, checker: Checker) -> list[Value]:
    """Return what the methods of a class assign to an attribute of their first argument."""
    found = []
    for base in checker.mro(value.definition):
        if not isinstance(base, ClassDefinition):
            continue
        for method in base.node.body:
            if isinstance(method, ast.FunctionDef):
                found += list(_assigned_in(method, base, name, checker))
    return [owned(each, value.owner) for each in found]


def _assigned_in(
    method: ast.FunctionDef, base: ClassDefinition, name: str, checker: Checker
) -> Iterator[Value]:
    scope = Scope(base.module, base.scope, function=base.function(method))
    for parameter in (*method.args.posonlyargs, *method.args.args, *method.args.kwonlyargs):
        scope.names[parameter.arg] = checker.annotated(parameter.annotation, base.scope)
    for node in ast.walk(method):
        match node:
            case ast.Assign(targets=[ast.Attribute(value=ast.Name(), attr=attribute)], value=assigned):
                if attribute == name and not checker.is_too_deep(node):
                    yield _looked_at(assigned, node, scope, checker)
            case ast.AnnAssign(target=ast.Attribute(value=ast.Name(), attr=attribute), annotation=annotation):
                if attribute == name:
                    yield checker.annotated(annotation, scope)
            case _:
                pass


def _looked_at(assigned: ast.expr, node: ast.AST, scope: Scope, checker: Checker) -> Value:
    with checker.within("", node, scope.module):
        return checker.quietly(assigned, scope)


def _outside(value: Object | Class, name: str, checker: Checker) -> Value:
    """Return an attribute that a class has from a base that is not the user's."""
    for base in checker.mro(value.definition):
        if (
            isinstance(base, str)
            and base not in _MODELS
            and base != "handlers.Handler"
            and isinstance(value, Class)
        ):
            return Outside(f"{base}.{name}")
    return Method(value, name)


def _called(node: ast.expr) -> ast.expr:
    return node.func if isinstance(node, ast.Call) else node
