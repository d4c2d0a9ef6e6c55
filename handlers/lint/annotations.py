"""Annotations: what a value of an annotated name may be."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from handlers.lint.definitions import Scope
from handlers.lint.parsing import parse_expression
from handlers.lint.values import (
    UNKNOWN,
    Class,
    Collection,
    Instance,
    Object,
    Outside,
    Value,
    collection,
    join,
    row,
)

if TYPE_CHECKING:
    from handlers.lint.checker import Checker

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
    """Return what a name of this annotation holds."""
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
            return instance_of(checker.quietly(node, scope), checker, node, scope)
        case _:
            return UNKNOWN


def instance_of(
    type_: Value, checker: Checker, node: ast.expr | None = None, scope: Scope | None = None
) -> Value:
    """Return an instance of what an expression gave, when that is a class."""
    if isinstance(type_, Class):
        return Object(type_.definition)
    if isinstance(type_, Outside):
        kind = _KINDS.get(type_.name)
        return collection(kind) if kind else Instance(type_.name)
    if isinstance(node, ast.Name) and scope is not None:
        return checker.alias(node.id, scope)
    return UNKNOWN


def _subscripted(generic: Value, arguments: list[ast.expr], scope: Scope, checker: Checker) -> Value:
    if not isinstance(generic, Outside):
        return instance_of(generic, checker)
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
