"""Annotations: the values that an annotated name may have."""

from __future__ import annotations

import ast

from handlers.lint.checker import Checker
from handlers.lint.source.bindings import Assigned
from handlers.lint.source.parsing import parse_expression
from handlers.lint.values import (
    UNKNOWN,
    Class,
    Collection,
    External,
    Instance,
    Object,
    Scope,
    Value,
    collection,
    join,
    row,
)

_KINDS = {
    "builtins.set": "set",
    "builtins.frozenset": "frozenset",
    "builtins.list": "list",
    "builtins.tuple": "tuple",
    "builtins.dict": "dict",
    "typing.Set": "set",
    "typing.AbstractSet": "frozenset",
    "typing.MutableSet": "set",
    "typing.FrozenSet": "frozenset",
    "typing.List": "list",
    "typing.Tuple": "tuple",
    "typing.Dict": "dict",
    "typing.Mapping": "dict",
    "typing.MutableMapping": "dict",
    "typing.Sequence": "list",
    "typing.MutableSequence": "list",
    "typing.Collection": "list",
    "typing.Iterable": "iterator",
    "typing.Iterator": "iterator",
    "typing.Generator": "iterator",
    "typing.DefaultDict": "dict",
    "typing.Counter": "dict",
    "typing.Deque": "list",
    "collections.deque": "list",
    "collections.defaultdict": "dict",
    "collections.OrderedDict": "dict",
    "collections.Counter": "dict",
}
_TRANSPARENT = frozenset(
    f"typing.{name}"
    for name in ("Annotated", "Final", "ClassVar", "Optional", "Required", "NotRequired", "ReadOnly")
)
_MAPPINGS = 2


def annotated(node: ast.expr | None, scope: Scope, checker: Checker) -> Value:
    """Return the values that a name with this annotation may have."""
    match node:
        case None:
            return UNKNOWN
        case ast.Constant(value=str(text)):
            return annotated(parse_expression(text), scope, checker)
        case ast.BinOp(op=ast.BitOr(), left=left, right=right):
            return join(annotated(left, scope, checker), annotated(right, scope, checker))
        case ast.Subscript(value=generic, slice=inside):
            arguments = inside.elts if isinstance(inside, ast.Tuple) else [inside]
            return _subscripted(checker.quietly(generic, scope), list(arguments), scope, checker)
        case ast.Name() | ast.Attribute():
            return _instance(checker.quietly(node, scope), node, scope, checker)
        case _:
            return UNKNOWN


def _instance(type_: Value, node: ast.expr, scope: Scope, checker: Checker) -> Value:
    """Return an instance of the type that an annotation evaluated to, or names by an alias."""
    if isinstance(type_, Class | External):
        return _instance_of(type_)
    return _alias(node.id, scope, checker) if isinstance(node, ast.Name) else UNKNOWN


def _instance_of(type_: Value) -> Value:
    if isinstance(type_, Class):
        return Object(type_.definition)
    if isinstance(type_, External):
        kind = _KINDS.get(type_.name)
        return collection(kind) if kind else Instance(type_.name)
    return UNKNOWN


def _alias(name: str, scope: Scope, checker: Checker) -> Value:
    """Return an instance of the type that a name at the top of the module stands for."""
    for binding in scope.module.bindings.names.get(name, ()):
        assigned = binding.value if isinstance(binding, Assigned) else None
        if assigned is not None and not checker.is_too_deep(assigned):
            with checker.within(name, assigned, scope.module):
                return annotated(assigned, checker.module_scope(scope.module), checker)
    return UNKNOWN


def _subscripted(generic: Value, arguments: list[ast.expr], scope: Scope, checker: Checker) -> Value:
    if not isinstance(generic, External):
        return _instance_of(generic)
    if generic.name in _TRANSPARENT:
        return annotated(arguments[0], scope, checker)
    if generic.name == "typing.Union":
        return join(*(annotated(each, scope, checker) for each in arguments))
    kind = _KINDS.get(generic.name)
    if kind is None:
        return Instance(generic.name)
    members = [annotated(each, scope, checker) for each in arguments]
    return _of_members(kind, members, arguments)


def _of_members(kind: str, members: list[Value], arguments: list[ast.expr]) -> Collection:
    if kind == "dict" and len(members) == _MAPPINGS:
        return collection("dict", members[0], item=members[1])
    is_variadic = isinstance(arguments[-1], ast.Constant) and arguments[-1].value is ...
    if kind == "tuple" and not is_variadic:
        return row(*members)
    return collection(kind, members[0])
