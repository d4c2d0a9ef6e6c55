"""Calls of functions and classes of libraries, by name."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping

from handlers.lint import hazards, operators, resolution, rules
from handlers.lint.checker import Checker
from handlers.lint.operators import call_back, library_result
from handlers.lint.rules import listed
from handlers.lint.source import parse_expression
from handlers.lint.values import (
    TEXT,
    UNKNOWN,
    Accessor,
    Arguments,
    Class,
    Collection,
    Constant,
    External,
    Function,
    Instance,
    Method,
    Object,
    Owner,
    Package,
    Partial,
    Scope,
    Super,
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

# Functions of the standard library that are interpreted: they read attributes, import, evaluate, or wrap.


def _getattr(arguments: Arguments, node: ast.AST, scope: Scope, checker: Checker) -> Value:
    base, name = arguments.first(), _text(arguments.get(1, ""))
    if name is not None:
        found = resolution.attribute(base, name, node, scope, checker)
        return join(found, *arguments.positional[2:])
    if any(isinstance(each, External | Package) for each in options(base)):
        checker.report("CM901", node, scope, "getattr() with a name that is computed")
    return Value(owner=base.owner)


def _setattr(arguments: Arguments, node: ast.AST, scope: Scope, checker: Checker) -> Value:
    hazards.check_changed(arguments.first(), node, scope, checker)
    return UNKNOWN


def _import(arguments: Arguments, node: ast.AST, scope: Scope, checker: Checker) -> Value:
    name = _text(arguments.first())
    if name is not None:
        found = checker.modules.find(name)
        return Package(found) if found else External(rules.canonical(name))
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
    return resolution.attribute(arguments.first(), "__dict__", node, scope, checker)


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
    hazards.check_call(name, arguments, node, scope, checker)
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
    return rules.called(name)


def _is_missing(argument: Value | None) -> bool:
    return argument in (None, Constant(None))


def _check_changes(name: str, arguments: Arguments, node: ast.AST, scope: Scope, checker: Checker) -> None:
    owner, _, method = name.rpartition(".")
    is_unbound = owner in ("builtins.list", "builtins.dict", "builtins.set") and method in hazards.MUTATORS
    if (
        name in _CHANGES_FIRST
        or is_unbound
        or name.endswith((".__setattr__", ".__delattr__", ".__setitem__"))
    ):
        hazards.check_changed(arguments.first(), node, scope, checker)
    if name == "builtins.next":
        for option in options(arguments.first()):
            if option.owner in (Owner.MODULE, Owner.CLASS, Owner.DEFAULT):
                hazards.check_changed(option, node, scope, checker)


# Methods of values whose classes are not the user's: their results, and the rules that calling them breaks.

_FILE_METHODS = frozenset({"read_text", "write_text", "read_bytes", "write_bytes", "iterdir", "rglob"})
_COPIES = frozenset({"model_copy", "copy", "__copy__", "__deepcopy__", "replace"})
_BUILDERS = frozenset({"model_construct", "model_validate", "model_validate_json", "parse_obj"})
_SET_RESULTS = frozenset({"union", "intersection", "difference", "symmetric_difference", "copy"})
_RANDOM = "random.Random"


def call_method(method: Method, arguments: Arguments, node: ast.AST, scope: Scope, checker: Checker) -> Value:
    """Return the possible results of a method."""
    receiver, name = method.receiver, method.name
    if hazards.is_changing(method):
        hazards.check_changed(receiver, node, scope, checker)
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
        hazards.check_changed(arguments.first(), node, scope, checker)
    if receiver.of == _RANDOM and name == "choice":
        return element_of(arguments.first())
    return call(External(f"{receiver.of}.{name}"), arguments, node, scope, checker)


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
