"""Operators, and the special methods of the user's objects that Python calls for them."""

from __future__ import annotations

import ast

from handlers.lint import rules
from handlers.lint.checker import Checker
from handlers.lint.hazards import is_lazy
from handlers.lint.resolution import members
from handlers.lint.rules import listed
from handlers.lint.source import FunctionNode
from handlers.lint.values import (
    FLOAT,
    NUMBER,
    TEXT,
    UNKNOWN,
    Arguments,
    Collection,
    Constant,
    External,
    Function,
    Instance,
    Object,
    Partial,
    Scope,
    Value,
    collection,
    element_of,
    fresh,
    is_float,
    is_unordered,
    item_of,
    join,
    makes_set,
    options,
    row,
    type_name,
)

# Callbacks: functions among the arguments of a call, which the function that gets them may call.


def call_back(arguments: Arguments, given: Value, node: ast.AST, scope: Scope, checker: Checker) -> Value:
    """Follow the functions among the arguments, each called with a value; return what they may return."""
    results = [
        checker.call(option, Arguments((given,), is_open=True), node, scope)
        for argument in arguments
        for option in options(argument)
        if isinstance(option, Function | Partial)
        or (isinstance(option, External) and rules.called(option.name) is not None)
    ]
    return join(*results) if results else UNKNOWN


_OPERATORS = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "truediv",
    ast.FloorDiv: "floordiv",
    ast.Mod: "mod",
    ast.Pow: "pow",
    ast.MatMult: "matmul",
    ast.BitAnd: "and",
    ast.BitOr: "or",
    ast.BitXor: "xor",
    ast.LShift: "lshift",
    ast.RShift: "rshift",
}
_SET_OPERATORS = (ast.BitOr, ast.BitAnd, ast.Sub, ast.BitXor)
_COMPARISONS = {
    ast.Eq: "__eq__",
    ast.NotEq: "__eq__",
    ast.Lt: "__lt__",
    ast.LtE: "__le__",
    ast.Gt: "__gt__",
    ast.GtE: "__ge__",
}
_OF_BUILTINS = {
    "builtins.len": ("__len__",),
    "builtins.str": ("__str__", "__repr__"),
    "builtins.format": ("__format__", "__str__", "__repr__"),
    "builtins.repr": ("__repr__",),
    "builtins.bool": ("__bool__", "__len__"),
    "builtins.hash": ("__hash__",),
    "builtins.int": ("__int__", "__index__"),
    "builtins.float": ("__float__",),
    "builtins.abs": ("__abs__",),
    "builtins.round": ("__round__",),
    "builtins.next": ("__next__",),
    "builtins.reversed": ("__reversed__",),
    "copy.copy": ("__copy__",),
    "copy.deepcopy": ("__deepcopy__",),
}
_ITERATING = listed(
    "list tuple set frozenset sorted sum min max any all iter enumerate zip dict map filter", "builtins."
)
_COMPARING = listed("sorted min max", "builtins.")
TEXT_METHODS = ("__format__", "__str__", "__repr__")


def call_special(
    value: Value, names: tuple[str, ...], node: ast.AST, checker: Checker, *given: Value
) -> Value:
    """Follow the first of these methods that an object of the user's has, and return its possible results."""
    results = []
    for option in options(value):
        found = _special(option, names, checker) if isinstance(option, Object) else None
        if found is not None:
            results.append(checker.call(found, Arguments(given), node, found.definition.scope))
    return join(*results) if results else UNKNOWN


def iterate(value: Value, node: ast.AST, checker: Checker) -> Value:
    """Return what iterating over a value yields, and follow the methods that yield it."""
    given = call_special(value, ("__iter__", "__getitem__"), node, checker)
    following = call_special(given, ("__next__",), node, checker)
    return join(element_of(value), *(each for each in (element_of(given), following) if each != UNKNOWN))


def follow_operator(
    left: Value, operator: ast.operator, right: Value, node: ast.AST, checker: Checker
) -> Value:
    """Return the possible results of an operator of the user's objects."""
    name = _OPERATORS.get(type(operator), "")
    first = call_special(left, (f"__{name}__",), node, checker, right)
    second = call_special(right, (f"__r{name}__",), node, checker, left)
    return join(first, second)


def result_of(left: Value, operator: ast.operator, right: Value) -> Value:
    """Return the possible results of an operator of built-in types."""
    if isinstance(operator, _SET_OPERATORS) and (makes_set(left) or makes_set(right)):
        return collection("set", join(element_of(left), element_of(right)))
    if isinstance(left, Instance) and not left.of.startswith("builtins."):
        return fresh(left)  # a path, a date, a Decimal
    if isinstance(operator, ast.Div) or is_float(left) or is_float(right):
        return FLOAT
    if isinstance(left, Constant) or isinstance(right, Constant):
        return _of_constants(left, right, operator)
    known = left if left != UNKNOWN else right
    return fresh(known) if isinstance(known, Collection) or type_name(known) else UNKNOWN


def follow_comparison(
    left: Value, operator: ast.cmpop, right: Value, node: ast.AST, checker: Checker
) -> None:
    """Follow a comparison of the user's objects."""
    if isinstance(operator, ast.In | ast.NotIn):
        call_special(right, ("__contains__", "__iter__"), node, checker, left)
    elif type(operator) in _COMPARISONS:
        call_special(left, (_COMPARISONS[type(operator)],), node, checker, right)


def follow_builtin(name: str, arguments: Arguments, node: ast.AST, checker: Checker) -> None:
    """Follow the special methods of the user's objects that a built-in function calls."""
    first = arguments.first()
    if name in _OF_BUILTINS:
        call_special(first, _OF_BUILTINS[name], node, checker)
    if name in _ITERATING:
        for argument in arguments.positional:
            element = iterate(argument, node, checker)
            if name in _COMPARING:
                call_special(element, ("__lt__",), node, checker, element)


def _special(value: Object, names: tuple[str, ...], checker: Checker) -> Function | None:
    for name in names:
        for base, binding in members(value.definition, name, checker):
            if isinstance(binding, FunctionNode):
                return Function(base.function(binding), value)
    return None


def _of_constants(left: Value, right: Value, operator: ast.operator) -> Value:
    """Return the result of an operator on a literal: two texts are concatenated, otherwise only the type is known."""
    match left, right, operator:
        case Constant(value=str(first)), Constant(value=str(second)), ast.Add():
            return Constant(first + second)
    other = right if isinstance(left, Constant) and not isinstance(right, Constant) else left
    if isinstance(other, Constant):
        return Instance(type_name(other))
    return fresh(other)


# Results of library functions, as far as the rules depend on them.

_MADE = {
    "builtins.set": "set",
    "builtins.frozenset": "frozenset",
    "builtins.list": "list",
    "builtins.tuple": "tuple",
    "builtins.sorted": "list",
    "builtins.reversed": "iterator",
    "collections.deque": "list",
    "itertools.islice": "iterator",
    "itertools.takewhile": "iterator",
}
_DICTS = frozenset(
    {"builtins.dict", "collections.OrderedDict", "collections.Counter", "collections.ChainMap"}
)
_TEXTS = frozenset({"builtins.str", "builtins.repr", "builtins.format", "builtins.ascii", "builtins.chr"})
_NUMBERS = frozenset({"builtins.int", "builtins.len", "builtins.ord", "builtins.round", "builtins.hash"})
_MEMBERS = frozenset({"builtins.min", "builtins.max", "builtins.next"})
_COPIES = frozenset({"copy.copy", "copy.deepcopy", "dataclasses.replace", "copy.replace"})
_MOMENTS = (
    "datetime.datetime",
    "datetime.datetime.now",
    "datetime.datetime.utcnow",
    "datetime.datetime.fromtimestamp",
    "datetime.datetime.fromisoformat",
    "datetime.datetime.strptime",
    "datetime.datetime.astimezone",
    "datetime.datetime.replace",
    "datetime.datetime.combine",
)
_INSTANCES = {
    **dict.fromkeys(_MOMENTS, "datetime.datetime"),
    "handlers.Context.new_guid": "uuid.UUID",
    "uuid.UUID": "uuid.UUID",
    "builtins.bool": "builtins.bool",
    **{
        f"pathlib.Path.{name}": "pathlib.Path"
        for name in ("joinpath", "with_name", "with_suffix", "with_stem", "cwd", "home")
    },
}


def library_result(name: str, arguments: Arguments, called_back: Value) -> Value:
    """Return the possible results of a function; `called_back` is what the functions among its arguments may return."""
    first = arguments.first()
    if name in _MADE:
        return collection(_MADE[name], element_of(first) if arguments.positional else UNKNOWN)
    if name in _MEMBERS:
        return (
            element_of(first)
            if len(arguments.positional) == 1 or name == "builtins.next"
            else join(*arguments)
        )
    if name in _COPIES:
        return fresh(first)
    if is_lazy(name):
        given = [each for each in arguments if isinstance(each, Collection)]
        element = called_back if name == "builtins.map" else join(*map(element_of, given))
        return collection("iterator", element, unordered=any(map(is_unordered, arguments)))
    return _of_plain_type(name, arguments) or _of_dict(name, arguments, called_back)


def _of_plain_type(name: str, arguments: Arguments) -> Value | None:
    if name in _TEXTS:
        return TEXT
    if name in ("builtins.float", "math.fsum", "statistics.fmean"):
        return FLOAT
    if name in _NUMBERS:
        is_rounded = name == "builtins.round" and len(arguments.positional) > 1
        return FLOAT if is_rounded else NUMBER
    if name == "builtins.enumerate":
        return collection("iterator", row(NUMBER, element_of(arguments.first())))
    if name == "builtins.zip":
        return collection("iterator", row(*map(element_of, arguments.positional)))
    if name in _INSTANCES:
        return Instance(_INSTANCES[name])
    return None


def _of_dict(name: str, arguments: Arguments, called_back: Value) -> Value:
    first = arguments.first()
    if name in _DICTS:
        items = [item_of(each) for each in options(first)] if arguments.positional else [UNKNOWN]
        return collection("dict", element_of(first), item=join(*items))
    if name == "builtins.dict.fromkeys":
        return collection("dict", element_of(first))
    if name == "collections.defaultdict":
        made = {"builtins.set": "set", "builtins.list": "list", "builtins.dict": "dict"}
        kind = made.get(getattr(first, "name", ""))
        return collection("dict", item=collection(kind) if kind else called_back)
    is_class = name.rpartition(".")[2][:1].isupper() and rules.called(name) is None
    return Instance(name) if is_class else UNKNOWN
