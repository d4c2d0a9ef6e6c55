"""Calls of functions and classes of libraries, by name."""

from __future__ import annotations

import ast

from handlers.lint import names
from handlers.lint.checker import Checker
from handlers.lint.hazards import mutation, order
from handlers.lint.interpreter import operators
from handlers.lint.interpreter.callbacks import call_back
from handlers.lint.interpreter.results import library_result
from handlers.lint.interpreter.special import SPECIAL
from handlers.lint.names import listed
from handlers.lint.values import (
    UNKNOWN,
    Arguments,
    Constant,
    External,
    Function,
    Owner,
    Scope,
    Value,
    element_of,
    join,
    options,
    type_name,
)

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
_PURE_WITH = {
    # name: position and name of the argument that makes it pure, and the rule that it breaks without
    "time.gmtime": (0, "secs", "CM101"),
    "time.strftime": (1, "t", "CM101"),
    "time.asctime": (0, "t", "CM101"),
    "gzip.compress": (2, "mtime", "CM101"),
    "random.Random": (0, "x", "CM201"),
    "numpy.random.default_rng": (0, "seed", "CM204"),
    "numpy.random.RandomState": (0, "seed", "CM204"),
    "numpy.random.Generator": (0, "bit_generator", "CM204"),
    "numpy.random.PCG64": (0, "seed", "CM204"),
    "datetime.datetime.fromtimestamp": (1, "tz", "CM103"),
    "datetime.datetime.astimezone": (0, "tz", "CM103"),
}
_LOCAL_TIMES = frozenset({"time.localtime", "time.ctime"})


def call(callee: External, arguments: Arguments, node: ast.AST, scope: Scope, checker: Checker) -> Value:
    """Return the possible results of a function, and report it when it breaks a rule."""
    name = callee.name
    code = _code(name, arguments)
    if code:
        checker.report(code, node, scope, name)
    order.check_call(name, arguments, node, scope, checker)
    operators.follow_builtin(name, arguments, node, checker)
    special = SPECIAL.get(name)
    if special is not None:
        return special(arguments, node, scope, checker)
    _check_changes(name, arguments, node, scope, checker)
    called_back = UNKNOWN
    if name not in _NEVER_CALLED:
        given = join(*(element_of(each) for each in arguments if not isinstance(each, Function)))
        called_back = call_back(arguments, given, node, scope, checker)
    return library_result(name, arguments, called_back)


def _code(name: str, arguments: Arguments) -> str | None:
    """Return the code of the rule that a call breaks."""
    if name in _PURE_WITH:
        position, keyword, code = _PURE_WITH[name]
        return code if _is_missing(arguments.get(position, keyword)) else None
    if name in _LOCAL_TIMES:
        return "CM101" if _is_missing(arguments.get(0, "secs")) else "CM103"
    if name == "builtins.hash":
        is_steady = all(type_name(each) in _STEADY_HASHES for each in options(arguments.first()))
        return None if is_steady else "CM602"
    if name.endswith(".__hash__") and name.removesuffix(".__hash__") not in _STEADY_HASHES:
        return "CM602"
    return names.called(name)


def _is_missing(argument: Value | None) -> bool:
    return argument in (None, Constant(None))


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
