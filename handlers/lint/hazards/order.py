"""Order: uses of the order of sets, which differs between processes."""

from __future__ import annotations

import ast

from handlers.lint.checker import Checker
from handlers.lint.names import listed
from handlers.lint.resolution.annotations import annotated
from handlers.lint.resolution.classes import members, users_mro
from handlers.lint.values import (
    Arguments,
    Collection,
    Constant,
    External,
    Function,
    Method,
    Object,
    Scope,
    Value,
    collection,
    element_of,
    is_float,
    is_unordered,
    options,
    sets,
)

_INDIFFERENT = listed(
    "len sorted min max any all set frozenset sum bool isinstance type print", "builtins."
) | listed("math.fsum copy.copy copy.deepcopy statistics.median statistics.fmean statistics.mean")
_LAZY = listed("map filter iter", "builtins.") | listed(
    "chain chain.from_iterable filterfalse starmap", "itertools."
)
_ORDERED = (
    *listed("list tuple enumerate zip dict reversed bytes bytearray", "builtins."),
    *listed("itertools collections functools.reduce heapq numpy array more_itertools pandas json.dumps"),
)
_CONVERSIONS = frozenset({"builtins.list", "builtins.tuple"})
_TIES = frozenset({"builtins.min", "builtins.max", "builtins.sorted", "heapq.nlargest", "heapq.nsmallest"})
_TEXTS = frozenset({"builtins.str", "builtins.repr", "builtins.ascii", "builtins.format"})
_DUMPS = listed("pickle.dumps marshal.dumps msgpack.packb msgpack.dumps")
_SUMS = frozenset({"builtins.sum", "math.prod"})
_METHODS = listed("join extend extendleft writelines fromkeys writerows")
_LOGGERS = listed("debug info warning error exception critical log")


def is_indifferent(callee: Value) -> bool:
    """Return whether a function's result does not depend on the order of its arguments' members."""
    return any(
        (
            isinstance(each, External)
            and (each.name in _INDIFFERENT | _SUMS or each.name.startswith("logging."))
        )
        or (isinstance(each, Method) and each.name in _LOGGERS)
        for each in options(callee)
    )


def orderless(node: ast.expr, scope: Scope, checker: Checker) -> Value:
    """Evaluate an expression whose order does not matter: making a list of a set is allowed in it."""
    if isinstance(node, ast.ListComp):
        generator = ast.copy_location(ast.GeneratorExp(node.elt, node.generators), node)
        return checker.evaluate(generator, scope)
    if isinstance(node, ast.Call) and len(node.args) == 1 and not node.keywords:
        callee = checker.quietly(node.func, scope)
        if isinstance(callee, External) and callee.name in _CONVERSIONS:
            given = orderless(node.args[0], scope, checker)
            return collection("iterator", element_of(given), unordered=is_unordered(given))
    return checker.evaluate(node, scope)


def check_iteration(value: Value, node: ast.AST, scope: Scope, checker: Checker) -> None:
    """Report an iteration over something unordered."""
    if is_unordered(value):
        checker.report("CM701", node, scope)


def check_text(value: Value, node: ast.AST, scope: Scope, checker: Checker) -> None:
    """Report that a set, or a model with a set in it, is converted to text."""
    if any(sets(value)) or any(_holds_set(option, checker) for option in options(value)):
        checker.report("CM703", node, scope)


def check_call(name: str, arguments: Arguments, node: ast.AST, scope: Scope, checker: Checker) -> None:
    """Report a call of a library's function that uses the order of a set."""
    if name in _TEXTS | _DUMPS:
        check_text(arguments.first(), node, scope, checker)
    if not any(map(is_unordered, arguments)):
        return
    if name == "builtins.next":
        checker.report("CM702", node, scope)
    elif name in _SUMS:
        start = arguments.get(1, "start")
        if is_float(element_of(arguments.first())) or (start is not None and is_float(start)):
            checker.report("CM704", node, scope)
    elif name in _TIES and _has_ties(dict(arguments.named).get("key")):
        checker.report("CM705", node, scope)
    elif name not in _TIES and name not in _LAZY and name.startswith(_ORDERED):
        checker.report("CM701", node, scope)


def check_method(method: Method, arguments: Arguments, node: ast.AST, scope: Scope, checker: Checker) -> None:
    """Report a call of a method that uses the order of a set."""
    if method.name == "pop" and any(each.kind == "set" for each in sets(method.receiver)):
        checker.report("CM702", node, scope)
    is_dict = any(isinstance(each, Collection) and each.kind == "dict" for each in options(method.receiver))
    uses_order = method.name in _METHODS or (method.name == "update" and is_dict)
    if uses_order and any(map(is_unordered, arguments)):
        checker.report("CM701", node, scope)
    if method.name in ("__str__", "__repr__", "__format__", "model_dump_json", "json"):
        check_text(method.receiver, node, scope, checker)
    if method.name == "format":
        for argument in arguments:
            check_text(argument, node, scope, checker)
    if method.name == "model_dump" and Constant("json") in arguments:
        check_text(method.receiver, node, scope, checker)
    if method.name == "__next__" and is_unordered(method.receiver):
        checker.report("CM702", node, scope)
    if method.name in ("__iter__", "__reduce__") and is_unordered(method.receiver):
        checker.report("CM701", node, scope)


def is_lazy(name: str) -> bool:
    """Return whether a function returns an iterator in the order of its arguments."""
    return name in _LAZY


def _has_ties(key: Value | None) -> bool:
    """Return whether different members may have the same key, as far as the form of the key function tells."""
    if key is None or key == Constant(None) or (isinstance(key, External) and key.name in _TEXTS):
        return False
    if not isinstance(key, Function) or not isinstance(key.definition.node, ast.Lambda):
        return True
    body, parameters = key.definition.node.body, key.definition.node.args.args
    given = parameters[0].arg if parameters else ""
    is_member = any(isinstance(each, ast.Name) and each.id == given for each in [body])
    return not (is_member or isinstance(body, ast.Tuple) or _is_text_of(body, given))


def _is_text_of(body: ast.expr, given: str) -> bool:
    match body:
        case ast.Call(func=ast.Name(id="str" | "repr"), args=[ast.Name(id=name)]):
            return name == given
        case _:
            return False


def _holds_set(value: Value, checker: Checker) -> bool:
    if isinstance(value, Collection):
        return any(any(sets(part)) for part in (value.element, value.item, *value.parts))
    if not isinstance(value, Object) or any(
        True for name in ("__str__", "__repr__") for _ in members(value.definition, name, checker)
    ):
        return False
    return any(
        any(sets(annotated(statement.annotation, base.body_scope, checker)))
        for base in users_mro(value.definition, checker)
        for statement in base.node.body
        if isinstance(statement, ast.AnnAssign)
    )
