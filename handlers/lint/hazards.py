"""What is wrong with a value, wherever it is used: the order of sets, and changes of what is shared."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from handlers.lint.checker import Checker
from handlers.lint.resolution import annotated, members, users_mro
from handlers.lint.rules import listed
from handlers.lint.values import (
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
    Scope,
    Value,
    collection,
    element_of,
    is_float,
    is_unordered,
    options,
    sets,
)

# Loops whose result does not depend on their order: they add to sets, count, or search for a member.
#
# The loop must not change what decides whether something is added or counted.

_INTO_SETS = frozenset({"add", "discard"})


def is_indifferent_loop(loop: ast.For | ast.AsyncFor) -> bool:
    """Return whether the result of a loop is the same in any order."""
    if loop.orelse or not all(map(_is_allowed, loop.body)):
        return False
    changed = set(_changed(loop.body))
    returned = {
        ast.dump(node.value) for node in ast.walk(loop) if isinstance(node, ast.Return) and node.value
    }
    return len(returned) <= 1 and not any(
        node.id in changed for looked_at in _looked_at(loop.body) for node in ast.walk(looked_at)
        if isinstance(node, ast.Name)
    )  # fmt: skip


def _is_allowed(statement: ast.stmt) -> bool:
    match statement:
        case ast.Pass() | ast.Continue() | ast.Return(value=ast.Constant()):
            return True
        case ast.Expr(ast.Call(func=ast.Attribute(value=ast.Name(), attr=name), args=[_], keywords=[])):
            return name in _INTO_SETS
        case ast.AugAssign(target=ast.Name(), op=ast.Add() | ast.Sub(), value=ast.Constant(value=int())):
            return True
        case ast.If(test=test, body=body, orelse=orelse):
            is_plain = not any(isinstance(node, ast.NamedExpr | ast.Await) for node in ast.walk(test))
            return is_plain and all(map(_is_allowed, [*body, *orelse]))
        case _:
            return False


def _changed(body: Sequence[ast.stmt]) -> Iterator[str]:
    for statement in body:
        match statement:
            case ast.Expr(ast.Call(func=ast.Attribute(value=ast.Name(id=name)))):
                yield name
            case ast.AugAssign(target=ast.Name(id=name)):
                yield name
            case ast.If(body=inner, orelse=orelse):
                yield from _changed([*inner, *orelse])
            case _:
                pass


def _looked_at(body: Sequence[ast.stmt]) -> Iterator[ast.expr]:
    """Yield the expressions that decide what the loop does, and those that it adds."""
    for statement in body:
        match statement:
            case ast.Expr(ast.Call(args=arguments)):
                yield from arguments
            case ast.If(test=test, body=inner, orelse=orelse):
                yield test
                yield from _looked_at([*inner, *orelse])
            case _:
                pass


# Mutation: changes of the state, the message, or what modules, classes and defaults share between messages.

MUTATORS = listed(
    "append appendleft extend extendleft insert add update pop popleft popitem remove clear discard setdefault sort "
    "reverse rotate subtract difference_update intersection_update symmetric_difference_update __setattr__ "
    "__delattr__ __setitem__ __delitem__ __ior__ __iadd__"
)
_CODES = {
    Owner.STATE: "CM806",
    Owner.MESSAGE: "CM807",
    Owner.MODULE: "CM801",
    Owner.CLASS: "CM802",
    Owner.DEFAULT: "CM803",
}
_IMMUTABLE = frozenset({"tuple", "frozenset"})
_MUTABLE = frozenset({"list", "dict", "set"})


def check_changed(value: Value, node: ast.AST, scope: Scope, checker: Checker) -> None:
    """Report that a shared value is mutated."""
    for option in options(value):
        code = _code(option)
        if code:
            checker.report(code, node, scope)


def check_target(target: ast.expr, scope: Scope, checker: Checker) -> None:
    """Report that an attribute or item of a shared value is set or deleted."""
    if isinstance(target, ast.Attribute | ast.Subscript):
        check_changed(checker.evaluate(target.value, scope), target, scope, checker)
    if isinstance(target, ast.Subscript):
        checker.evaluate(target.slice, scope)
    if isinstance(target, ast.Name) and target.id in scope.globals:
        checker.report("CM801", target, scope, target.id)


def check_augmented(target: ast.expr, held: Value, scope: Scope, checker: Checker) -> None:
    """Report that `+=` mutates a shared list, dict or set."""
    if not isinstance(target, ast.Name):
        return
    for option in options(held):
        if isinstance(option, Collection) and option.kind in _MUTABLE:
            check_changed(option, target, scope, checker)


def is_changing(method: Method) -> bool:
    """Return whether a method mutates its receiver."""
    receiver = method.receiver
    if isinstance(receiver, Collection) and receiver.kind in _IMMUTABLE:
        return False
    return method.name in MUTATORS


def _code(value: Value) -> str | None:
    if isinstance(value, Class):
        return _CODES[Owner.CLASS]
    if isinstance(value, Package) or (isinstance(value, Function) and value.definition.is_shared):
        return _CODES[Owner.MODULE]
    if isinstance(value, Collection) and value.kind in _IMMUTABLE:
        return None
    if (
        value.owner is None
        and isinstance(value, Method)
        and isinstance(value.receiver, Instance | Object | Collection)
    ):
        return _CODES[value.receiver.owner] if value.receiver.owner else None
    return _CODES[value.owner] if value.owner else None


# Order: uses of the order of sets, which differs between processes.

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


# Targets of assignments: their names are bound to the value, or to a part of it.


def bind_target(target: ast.expr, value: Value, scope: Scope, checker: Checker) -> None:
    """Bind the names in a target to a value, and report a target that mutates a shared value."""
    if isinstance(target, ast.Name):
        check_target(target, scope, checker)
        scope.bind(target.id, value)
    elif isinstance(target, ast.Starred):
        bind_target(target.value, collection("list", element_of(value)), scope, checker)
    elif isinstance(target, ast.Tuple | ast.List):
        _unpack(target, value, scope, checker)
    else:
        if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Slice):
            check_iteration(value, target, scope, checker)
        check_target(target, scope, checker)


def _unpack(target: ast.Tuple | ast.List, value: Value, scope: Scope, checker: Checker) -> None:
    is_only = len(target.elts) == 1 and not isinstance(target.elts[0], ast.Starred)
    if not is_only:  # a single member is the first one in any order
        check_iteration(value, target, scope, checker)
    if isinstance(value, Collection) and len(value.parts) == len(target.elts):
        for each, part in zip(target.elts, value.parts, strict=True):
            bind_target(each, part, scope, checker)
        return
    for each in target.elts:
        bind_target(each, value if isinstance(each, ast.Starred) else element_of(value), scope, checker)
