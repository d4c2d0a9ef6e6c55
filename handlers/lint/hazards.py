"""What is wrong with a value, wherever it is used: the order of sets, and changes of what is shared."""

from __future__ import annotations

import ast

from handlers.lint import values
from handlers.lint.resolution import annotated
from handlers.lint.rules import listed
from handlers.lint.values import Collection, External, Owner, Scope, Value, element_of, is_unordered, options

# Loops whose result does not depend on their order: they add to sets, count, or search for a member, and do not change
# what decides whether something is added or counted.


def is_indifferent_loop(loop: ast.For | ast.AsyncFor) -> bool:
    """Return whether the result of a loop is the same in any order."""
    changed: set[str] = set()
    looked_at: list[ast.expr] = []
    if loop.orelse or not all(_is_indifferent(each, changed, looked_at) for each in loop.body):
        return False
    returned = {
        ast.dump(node.value) for node in ast.walk(loop) if isinstance(node, ast.Return) and node.value
    }
    return len(returned) <= 1 and not any(
        isinstance(node, ast.Name) and node.id in changed for each in looked_at for node in ast.walk(each)
    )


def _is_indifferent(statement: ast.stmt, changed: set[str], looked_at: list[ast.expr]) -> bool:
    """Return whether a statement may be in such a loop.

    Adds the names that it changes, and the expressions that decide what it does, or that it adds.
    """
    match statement:
        case ast.Pass() | ast.Continue() | ast.Return(value=ast.Constant()):
            return True
        case ast.Expr(ast.Call(ast.Attribute(ast.Name(name), "add" | "discard"), [argument], [])):
            changed.add(name)
            looked_at.append(argument)
            return True
        case ast.AugAssign(ast.Name(name), ast.Add() | ast.Sub(), ast.Constant(value=int())):
            changed.add(name)
            return True
        case ast.If(test, body, orelse):
            looked_at.append(test)
            is_plain = not any(isinstance(node, ast.NamedExpr | ast.Await) for node in ast.walk(test))
            return is_plain and all(_is_indifferent(each, changed, looked_at) for each in [*body, *orelse])
    return False


# Mutation: changes of the state, the message, or what modules, classes and defaults share between messages.

MUTATORS = listed(
    "append appendleft extend extendleft insert add update pop popleft popitem remove clear discard setdefault sort "
    "reverse rotate subtract difference_update intersection_update symmetric_difference_update __setattr__ "
    "__delattr__ __setitem__ __delitem__ __ior__ __iadd__"
)


def check_changed(value: Value, node: ast.AST, scope: Scope) -> None:
    """Report that a shared value is mutated."""
    for option in options(value):
        owner = option.owner
        match option:
            case values.Class():
                owner = Owner.CLASS
            case values.Package():
                owner = Owner.MODULE
            case values.Function(definition=definition) if definition.is_shared:
                owner = Owner.MODULE
            case Collection(kind="tuple" | "frozenset"):
                owner = None
            case values.Method(owner=None, receiver=values.Instance() | values.Object() | Collection()):
                owner = option.receiver.owner
        if owner:
            scope.report(owner.value, node)


def check_target(target: ast.expr, scope: Scope) -> None:
    """Report that an attribute or item of a shared value is set or deleted."""
    match target:
        case ast.Attribute(value=base):
            check_changed(scope.evaluate(base), target, scope)
        case ast.Subscript(value=base, slice=key):
            check_changed(scope.evaluate(base), target, scope)
            scope.evaluate(key)
        case ast.Name(id=name) if name in scope.globals:
            scope.report("CM801", target, name)


def bind_target(target: ast.expr, value: Value, scope: Scope) -> None:
    """Bind the names in a target to a value or its parts, and report a target that mutates a shared value."""
    match target:
        case ast.Name(id=name):
            check_target(target, scope)
            scope.bind(name, value)
        case ast.Starred(value=inner):
            bind_target(inner, values.collection("list", element_of(value)), scope)
        case ast.Tuple(elts=members) | ast.List(elts=members):
            # A single member is the first in any order.
            if len(members) != 1 or isinstance(members[0], ast.Starred):
                check_iteration(value, target, scope)
            parts = value.parts if isinstance(value, Collection) else ()
            if len(parts) != len(members):
                parts = tuple(
                    value if isinstance(each, ast.Starred) else element_of(value) for each in members
                )
            for each, part in zip(members, parts, strict=True):
                bind_target(each, part, scope)
        case _:
            if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Slice):
                check_iteration(value, target, scope)
            check_target(target, scope)


# Order: uses of the order of sets, which differs between processes.

LAZY = listed("map filter iter", "builtins.") | listed(
    "chain chain.from_iterable filterfalse starmap", "itertools."
)
_SUMS = frozenset({"builtins.sum", "math.prod"})
_INDIFFERENT = (
    listed("len sorted min max any all set frozenset bool isinstance type print", "builtins.")
    | listed("math.fsum copy.copy copy.deepcopy statistics.median statistics.fmean statistics.mean")
    | _SUMS
)
_ORDERED = (
    *listed("list tuple enumerate zip dict reversed bytes bytearray", "builtins."),
    *listed("itertools collections functools.reduce heapq numpy array more_itertools pandas json.dumps"),
)
_TIES = frozenset({"builtins.min", "builtins.max", "builtins.sorted", "heapq.nlargest", "heapq.nsmallest"})
_TEXTS = listed("str repr ascii format", "builtins.")
_DUMPS = listed("pickle.dumps marshal.dumps msgpack.packb msgpack.dumps")
_ORDERED_METHODS = listed("join extend extendleft writelines fromkeys writerows")
_TEXT_METHODS = listed("__str__ __repr__ __format__ model_dump_json json")
_LOGGERS = listed("debug info warning error exception critical log")


def is_indifferent(callee: Value) -> bool:
    """Return whether a function's result does not depend on the order of its arguments' members."""
    return any(
        (isinstance(each, External) and (each.name in _INDIFFERENT or each.name.startswith("logging.")))
        or (isinstance(each, values.Method) and each.name in _LOGGERS)
        for each in options(callee)
    )


def orderless(node: ast.expr, scope: Scope) -> Value:
    """Evaluate an expression whose order does not matter: making a list of a set is allowed in it."""
    match node:
        case ast.ListComp(elt, generators):
            return scope.evaluate(ast.copy_location(ast.GeneratorExp(elt, generators), node))
        case ast.Call(func, [argument], []):
            callee = scope.quietly(func)
            if isinstance(callee, External) and callee.name in {"builtins.list", "builtins.tuple"}:
                given = orderless(argument, scope)
                return values.collection("iterator", element_of(given), unordered=is_unordered(given))
    return scope.evaluate(node)


def check_iteration(value: Value, node: ast.AST, scope: Scope) -> None:
    """Report an iteration over something unordered."""
    if is_unordered(value):
        scope.report("CM701", node)


def check_text(value: Value, node: ast.AST, scope: Scope) -> None:
    """Report that a set, or a model with a set in it, is converted to text."""
    if values.sets(value) or any(_holds_set(option) for option in options(value)):
        scope.report("CM703", node)


def check_call(name: str, arguments: values.Arguments, node: ast.AST, scope: Scope) -> None:
    """Report a call of a library's function that uses the order of a set."""
    if name in _TEXTS | _DUMPS:
        check_text(arguments.first(), node, scope)
    if not any(map(is_unordered, arguments)):
        return
    if name == "builtins.next":
        scope.report("CM702", node)
    elif name in _SUMS:
        start = arguments.get(1, "start")
        if values.is_float(element_of(arguments.first())) or (start is not None and values.is_float(start)):
            scope.report("CM704", node)
    elif name in _TIES:
        if _has_ties(dict(arguments.named).get("key")):
            scope.report("CM705", node)
    elif name not in LAZY and name.startswith(_ORDERED):
        scope.report("CM701", node)


def check_method(method: values.Method, arguments: values.Arguments, node: ast.AST, scope: Scope) -> None:
    """Report a call of a method that uses the order of a set, or that mutates what is shared."""
    receiver, name = method.receiver, method.name
    kinds = {each.kind for each in options(receiver) if isinstance(each, Collection)}
    if name in MUTATORS:
        check_changed(receiver, node, scope)
    if (name == "pop" and "set" in kinds) or (name == "__next__" and is_unordered(receiver)):
        scope.report("CM702", node)
    uses_order = name in _ORDERED_METHODS or (name == "update" and "dict" in kinds)
    if (uses_order and any(map(is_unordered, arguments))) or (
        name in {"__iter__", "__reduce__"} and is_unordered(receiver)
    ):
        scope.report("CM701", node)
    if name in _TEXT_METHODS or (name == "model_dump" and values.Constant("json") in arguments):
        check_text(receiver, node, scope)
    for argument in arguments if name == "format" else ():
        check_text(argument, node, scope)


def _has_ties(key: Value | None) -> bool:
    """Return whether different members may have the same key, as far as the form of the key function tells."""
    match key:
        case None | values.Constant(value=None):
            return False
        case External(name=name):
            return name not in _TEXTS
        case values.Function(definition=definition) if isinstance(definition.node, ast.Lambda):
            parameters = definition.node.args.args
            member = parameters[0].arg if parameters else ""
            match definition.node.body:
                case ast.Tuple():
                    return False
                case ast.Name(id=name) | ast.Call(func=ast.Name(id="str" | "repr"), args=[ast.Name(id=name)]):
                    return name != member
    return True


def _holds_set(value: Value) -> bool:
    if isinstance(value, Collection):
        return any(values.sets(part) for part in (value.element, value.item, *value.parts))
    if not isinstance(value, values.Object) or any(map(value.definition.members, ("__str__", "__repr__"))):
        return False
    return any(
        values.sets(annotated(statement.annotation, base.body_scope))
        for base in value.definition.users_mro
        for statement in base.node.body
        if isinstance(statement, ast.AnnAssign)
    )
