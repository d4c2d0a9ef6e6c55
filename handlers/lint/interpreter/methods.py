"""Methods of values whose classes are not the user's: their results, and the rules that calling them breaks."""

from __future__ import annotations

import ast

from handlers.lint.checker import Checker
from handlers.lint.hazards import mutation
from handlers.lint.interpreter import external
from handlers.lint.values import (
    TEXT,
    UNKNOWN,
    Arguments,
    Class,
    Collection,
    External,
    Instance,
    Method,
    Object,
    Owner,
    Scope,
    Value,
    collection,
    element_of,
    fresh,
    item_of,
    join,
    options,
    row,
    type_name,
)

_FILE_METHODS = frozenset({"read_text", "write_text", "read_bytes", "write_bytes", "iterdir", "rglob"})
_COPIES = frozenset({"model_copy", "copy", "__copy__", "__deepcopy__", "replace"})
_BUILDERS = frozenset({"model_construct", "model_validate", "model_validate_json", "parse_obj"})
_SET_RESULTS = frozenset({"union", "intersection", "difference", "symmetric_difference", "copy"})
_RANDOM = "random.Random"


def call_method(method: Method, arguments: Arguments, node: ast.AST, scope: Scope, checker: Checker) -> Value:
    """Return the possible results of a method."""
    receiver, name = method.receiver, method.name
    if mutation.is_changing(method):
        mutation.check_changed(receiver, node, scope, checker)
    if isinstance(receiver, Instance):
        return _of_instance(receiver, name, arguments, node, scope, checker)
    if isinstance(receiver, Object | Class):
        return _of_users(receiver, name)
    if isinstance(receiver, Collection):
        return _of_collection(receiver, name, arguments)
    if type_name(receiver) == "builtins.str":
        return collection("list", TEXT) if name in ("split", "splitlines", "rsplit") else TEXT
    if name in _FILE_METHODS:
        checker.report("CM401", node, scope, name)
    if name == "astimezone" and not arguments.positional and not arguments.named and not arguments.is_open:
        checker.report("CM103", node, scope, "astimezone()")
    return UNKNOWN


def _of_instance(  # noqa: PLR0917 - what is called first
    receiver: Instance, name: str, arguments: Arguments, node: ast.AST, scope: Scope, checker: Checker
) -> Value:
    if receiver.of == _RANDOM and receiver.owner in (Owner.MODULE, Owner.CLASS, Owner.DEFAULT):
        checker.report("CM205", node, scope, f"{_RANDOM}.{name}")
    if receiver.of == _RANDOM and name == "shuffle":
        mutation.check_changed(arguments.first(), node, scope, checker)
    if receiver.of == _RANDOM and name == "choice":
        return element_of(arguments.first())
    return external.call(External(f"{receiver.of}.{name}"), arguments, node, scope, checker)


def _of_users(receiver: Object | Class, name: str) -> Value:
    definition = receiver.definition
    if name in _BUILDERS or (isinstance(receiver, Object) and name in _COPIES):
        return Object(definition)
    if name == "model_dump":
        return collection("dict")
    return UNKNOWN


def _of_collection(receiver: Collection, name: str, arguments: Arguments) -> Value:
    if receiver.kind == "dict":
        return _of_dict(receiver, name, arguments)
    if name in _SET_RESULTS:
        return collection(receiver.kind, join(element_of(receiver), *map(element_of, arguments)))
    if name == "pop":
        return element_of(receiver)
    return UNKNOWN


def _of_dict(receiver: Collection, name: str, arguments: Arguments) -> Value:
    key, item = element_of(receiver), item_of(receiver)
    match name:
        case "keys":
            return collection("keys", key)
        case "values":
            return collection("iterator", item)
        case "items":
            return collection("items", row(key, item))
        case "get" | "setdefault" | "pop":
            return join(item, *(option for value in arguments.positional[1:] for option in options(value)))
        case "copy":
            return fresh(receiver)
        case _:
            return UNKNOWN
