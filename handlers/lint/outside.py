"""Calls of functions and classes that are not the user's."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import TYPE_CHECKING

from handlers.lint import attributes, calls, mutation, names, operators, order
from handlers.lint.arguments import Arguments
from handlers.lint.definitions import Scope
from handlers.lint.listed import listed
from handlers.lint.parsing import parse_expression
from handlers.lint.results import result_of
from handlers.lint.values import (
    UNKNOWN,
    Accessor,
    Class,
    Constant,
    Function,
    Instance,
    Object,
    Outside,
    Owner,
    Package,
    Partial,
    Super,
    Value,
    element_of,
    join,
    options,
    type_name,
)

if TYPE_CHECKING:
    from handlers.lint.checker import Checker

_STEADY_HASHES = frozenset(f"builtins.{name}" for name in ("int", "float", "bool", "complex")) | {
    "decimal.Decimal",
    "fractions.Fraction",
    "uuid.UUID",
}
_NEVER_CALLED = listed(
    "builtins.isinstance builtins.issubclass builtins.staticmethod builtins.classmethod builtins.property "
    "builtins.type builtins.callable builtins.hasattr functools.wraps functools.update_wrapper typing.cast "
    "handlers.App handlers.handles functools.partialmethod"
)
_CHANGES_FIRST = listed("heappush heappop heapify heapreplace heappushpop", "heapq.") | listed(
    "bisect.insort bisect.insort_left bisect.insort_right operator.setitem operator.delitem operator.iadd operator.ior"
)
_NEEDS_ARGUMENTS = {
    # name: how many arguments make it depend on nothing else
    "time.gmtime": (1, "secs"),
    "time.strftime": (2, "t"),
    "time.asctime": (1, "t"),
    "gzip.compress": (3, "mtime"),
    "random.Random": (1, "x"),
    "numpy.random.default_rng": (1, "seed"),
    "numpy.random.RandomState": (1, "seed"),
    "numpy.random.Generator": (1, "bit_generator"),
    "numpy.random.PCG64": (1, "seed"),
    "datetime.datetime.fromtimestamp": (2, "tz"),
    "datetime.datetime.astimezone": (1, "tz"),
}
_WITHOUT = {
    "time.gmtime": "CM101",
    "time.strftime": "CM101",
    "time.asctime": "CM101",
    "gzip.compress": "CM101",
    "random.Random": "CM201",
    "datetime.datetime.fromtimestamp": "CM103",
    "datetime.datetime.astimezone": "CM103",
}
_LOCAL_WITH = {"time.localtime": (1, "secs"), "time.ctime": (1, "secs")}


def breaks_a_rule(value: Value) -> bool:
    """Say whether calling something that is not the user's breaks a rule."""
    return isinstance(value, Outside) and names.called(value.name) is not None


def call(callee: Outside, arguments: Arguments, node: ast.AST, scope: Scope, checker: Checker) -> Value:
    """Return what a function may give, and report it when it breaks a rule."""
    name = callee.name
    code = _code(name, arguments)
    if code:
        checker.report(code, node, scope, name)
    order.check_call(name, arguments, node, scope, checker)
    operators.follow_builtin(name, arguments, node, checker)
    special = _SPECIAL.get(name)
    if special is not None:
        return special(arguments, node, scope, checker)
    _check_changes(name, arguments, node, scope, checker)
    called_back = UNKNOWN
    if name not in _NEVER_CALLED:
        given = join(*(element_of(each) for each in arguments if not isinstance(each, Function)))
        called_back = calls.call_back(arguments, given, node, scope, checker)
    return result_of(name, arguments, called_back)


def _code(name: str, arguments: Arguments) -> str | None:
    if name in _NEEDS_ARGUMENTS:
        count, keyword = _NEEDS_ARGUMENTS[name]
        given = arguments.get(count - 1, keyword)
        if given is not None and given != Constant(None):
            return None
        return _WITHOUT.get(name) or names.called(name)
    if name in _LOCAL_WITH:
        return "CM101" if arguments.get(0, "secs") in (None, Constant(None)) else "CM103"
    if name == "builtins.hash":
        steady = all(type_name(each) in _STEADY_HASHES for each in options(arguments.first()))
        return None if steady else "CM602"
    if name.endswith(".__hash__") and name.removesuffix(".__hash__") not in _STEADY_HASHES:
        return "CM602"
    return names.called(name)


def _check_changes(name: str, arguments: Arguments, node: ast.AST, scope: Scope, checker: Checker) -> None:
    owner, _, method = name.rpartition(".")
    is_unbound = owner in ("builtins.list", "builtins.dict", "builtins.set") and method in mutation.MUTATORS
    if (
        name in _CHANGES_FIRST
        or is_unbound
        or name.endswith((".__setattr__", ".__delattr__", ".__setitem__"))
    ):
        mutation.check_changed(arguments.first(), node, scope, checker)
    if name == "builtins.next":
        for option in options(arguments.first()):
            if option.owner in (Owner.MODULE, Owner.CLASS, Owner.DEFAULT):
                mutation.check_changed(option, node, scope, checker)


def _getattr(arguments: Arguments, node: ast.AST, scope: Scope, checker: Checker) -> Value:
    base, name = arguments.first(), arguments.get(1, "")
    if isinstance(name, Constant) and isinstance(name.value, str):
        found = attributes.attribute(base, name.value, node, scope, checker)
        return join(found, *arguments.positional[2:])
    if any(isinstance(each, Outside | Package) for each in options(base)):
        checker.report("CM901", node, scope, "getattr() with a name that is not in the source")
    return Value(owner=base.owner)


def _setattr(arguments: Arguments, node: ast.AST, scope: Scope, checker: Checker) -> Value:
    mutation.check_changed(arguments.first(), node, scope, checker)
    return UNKNOWN


def _import(arguments: Arguments, node: ast.AST, scope: Scope, checker: Checker) -> Value:
    name = arguments.first()
    if isinstance(name, Constant) and isinstance(name.value, str):
        found = checker.library.find(name.value)
        return Package(found) if found else Outside(names.canonical(name.value))
    checker.report("CM901", node, scope, "an import of a name that is not in the source")
    return UNKNOWN


def _eval(arguments: Arguments, node: ast.AST, scope: Scope, checker: Checker) -> Value:
    text = arguments.first()
    if isinstance(text, Constant) and isinstance(text.value, str):
        parsed = parse_expression(text.value)
        if parsed is None:
            return UNKNOWN
        for each in ast.walk(parsed):
            if hasattr(each, "lineno"):
                ast.copy_location(each, node)
        return checker.evaluate(parsed, scope)
    checker.report("CM901", node, scope, "eval() of what is not in the source")
    return UNKNOWN


def _vars(arguments: Arguments, node: ast.AST, scope: Scope, checker: Checker) -> Value:
    if not arguments.positional:
        return UNKNOWN
    return attributes.attribute(arguments.first(), "__dict__", node, scope, checker)


def _globals(_arguments: Arguments, _node: ast.AST, scope: Scope, _checker: Checker) -> Value:
    return Package(scope.module, owner=Owner.MODULE)


def _type(arguments: Arguments, _node: ast.AST, _scope: Scope, _checker: Checker) -> Value:
    return join(*(_class_of(each) for each in options(arguments.first())))


def _class_of(value: Value) -> Value:
    if isinstance(value, Object):
        return Class(value.definition)
    return Outside(type_name(value)) if type_name(value) else UNKNOWN


def _super(arguments: Arguments, _node: ast.AST, scope: Scope, _checker: Checker) -> Value:
    function = scope.function
    inside: Scope | None = scope
    while inside is not None and inside.parent is not None and inside.parent.function is function:
        inside = inside.parent
    if function is None or function.owner is None or inside is None:
        return UNKNOWN
    first = next(iter(inside.names.values()), UNKNOWN)
    given = arguments.get(1, "")
    return Super(function.owner, given or first)


def _partial(arguments: Arguments, _node: ast.AST, _scope: Scope, _checker: Checker) -> Value:
    return Partial(arguments.first(), arguments.positional[1:])


def _unchanged(arguments: Arguments, _node: ast.AST, _scope: Scope, _checker: Checker) -> Value:
    return arguments.first()


def _cast(arguments: Arguments, _node: ast.AST, _scope: Scope, _checker: Checker) -> Value:
    return arguments.get(1, "val") or UNKNOWN


def _getter(arguments: Arguments, _node: ast.AST, _scope: Scope, _checker: Checker) -> Value:
    name = arguments.first()
    return Accessor(str(name.value), calls=False) if isinstance(name, Constant) else UNKNOWN


def _caller(arguments: Arguments, _node: ast.AST, _scope: Scope, _checker: Checker) -> Value:
    name = arguments.first()
    return Accessor(str(name.value), calls=True) if isinstance(name, Constant) else UNKNOWN


def _new_random(_arguments: Arguments, _node: ast.AST, _scope: Scope, _checker: Checker) -> Value:
    return Instance("random.Random")


_SPECIAL: dict[str, Callable[[Arguments, ast.AST, Scope, Checker], Value]] = {
    "builtins.getattr": _getattr,
    "builtins.setattr": _setattr,
    "builtins.delattr": _setattr,
    "builtins.__import__": _import,
    "importlib.import_module": _import,
    "builtins.eval": _eval,
    "builtins.vars": _vars,
    "builtins.globals": _globals,
    "builtins.type": _type,
    "builtins.super": _super,
    "functools.partial": _partial,
    "builtins.staticmethod": _unchanged,
    "builtins.classmethod": _unchanged,
    "functools.partialmethod": _unchanged,
    "functools.lru_cache": _unchanged,
    "functools.cache": _unchanged,
    "typing.cast": _cast,
    "operator.attrgetter": _getter,
    "operator.methodcaller": _caller,
    "random.Random": _new_random,
}
