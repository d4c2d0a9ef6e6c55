"""Functions of the standard library that are interpreted: they read attributes, import, evaluate, or wrap."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping

from handlers.lint import names
from handlers.lint.checker import Checker
from handlers.lint.hazards import mutation
from handlers.lint.resolution import attributes
from handlers.lint.source.parsing import parse_expression
from handlers.lint.values import (
    UNKNOWN,
    Accessor,
    Arguments,
    Class,
    Constant,
    External,
    Instance,
    Object,
    Owner,
    Package,
    Partial,
    Scope,
    Super,
    Value,
    join,
    options,
    type_name,
)


def _getattr(arguments: Arguments, node: ast.AST, scope: Scope, checker: Checker) -> Value:
    base, name = arguments.first(), _text(arguments.get(1, ""))
    if name is not None:
        found = attributes.attribute(base, name, node, scope, checker)
        return join(found, *arguments.positional[2:])
    if any(isinstance(each, External | Package) for each in options(base)):
        checker.report("CM901", node, scope, "getattr() with a name that is computed")
    return Value(owner=base.owner)


def _setattr(arguments: Arguments, node: ast.AST, scope: Scope, checker: Checker) -> Value:
    mutation.check_changed(arguments.first(), node, scope, checker)
    return UNKNOWN


def _import(arguments: Arguments, node: ast.AST, scope: Scope, checker: Checker) -> Value:
    name = _text(arguments.first())
    if name is not None:
        found = checker.modules.find(name)
        return Package(found) if found else External(names.canonical(name))
    checker.report("CM901", node, scope, "an import of a name that is computed")
    return UNKNOWN


def _eval(arguments: Arguments, node: ast.AST, scope: Scope, checker: Checker) -> Value:
    text = _text(arguments.first())
    if text is None:
        checker.report("CM901", node, scope, "eval() of a text that is computed")
        return UNKNOWN
    parsed = parse_expression(text)
    if parsed is None:
        return UNKNOWN
    for each in ast.walk(parsed):
        if hasattr(each, "lineno"):
            ast.copy_location(each, node)
    return checker.evaluate(parsed, scope)


def _vars(arguments: Arguments, node: ast.AST, scope: Scope, checker: Checker) -> Value:
    if not arguments.positional:
        return UNKNOWN
    return attributes.attribute(arguments.first(), "__dict__", node, scope, checker)


def _super(arguments: Arguments, _node: ast.AST, scope: Scope, _checker: Checker) -> Value:
    function = scope.function
    inside: Scope | None = scope
    while inside is not None and inside.parent is not None and inside.parent.function is function:
        inside = inside.parent
    if function is None or function.owner is None or inside is None:
        return UNKNOWN
    first = next(iter(inside.names.values()), UNKNOWN)
    return Super(function.owner, arguments.get(1, "") or first)


def _text(value: Value | None) -> str | None:
    """Return a text that is a literal in the source, None for anything else."""
    return value.value if isinstance(value, Constant) and isinstance(value.value, str) else None


def _class_of(value: Value) -> Value:
    if isinstance(value, Object):
        return Class(value.definition)
    return External(type_name(value)) if type_name(value) else UNKNOWN


def _accessor(arguments: Arguments, *, calls: bool) -> Value:
    name = arguments.first()
    return Accessor(str(name.value), calls) if isinstance(name, Constant) else UNKNOWN


_Call = Callable[[Arguments, ast.AST, Scope, Checker], Value]


def _unchanged(arguments: Arguments, *_: object) -> Value:
    return arguments.first()


SPECIAL: Mapping[str, _Call] = {
    "builtins.getattr": _getattr,
    "builtins.setattr": _setattr,
    "builtins.delattr": _setattr,
    "builtins.__import__": _import,
    "importlib.import_module": _import,
    "builtins.eval": _eval,
    "builtins.vars": _vars,
    "builtins.globals": lambda _, __, scope, ___: Package(scope.module, owner=Owner.MODULE),
    "builtins.type": lambda arguments, *_: join(*map(_class_of, options(arguments.first()))),
    "builtins.super": _super,
    "functools.partial": lambda arguments, *_: Partial(arguments.first(), arguments.positional[1:]),
    "builtins.staticmethod": _unchanged,
    "builtins.classmethod": _unchanged,
    "functools.partialmethod": _unchanged,
    "functools.lru_cache": _unchanged,
    "functools.cache": _unchanged,
    "typing.cast": lambda arguments, *_: arguments.get(1, "val") or UNKNOWN,
    "operator.attrgetter": lambda arguments, *_: _accessor(arguments, calls=False),
    "operator.methodcaller": lambda arguments, *_: _accessor(arguments, calls=True),
    "random.Random": lambda *_: Instance("random.Random"),
}
"""By name; each returns the possible results of a call."""
