"""Expressions: their possible values, and the rules that they break."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from functools import singledispatch

from handlers.lint.checker import Checker
from handlers.lint.hazards import order
from handlers.lint.interpreter import calls, operators
from handlers.lint.interpreter.targets import bind_target
from handlers.lint.resolution import attributes
from handlers.lint.resolution.lookup import lookup
from handlers.lint.values import (
    TEXT,
    UNKNOWN,
    Collection,
    Constant,
    External,
    Function,
    FunctionDefinition,
    Instance,
    Package,
    Scope,
    Value,
    collection,
    element_of,
    fresh,
    is_unordered,
    item_of,
    join,
    options,
    row,
    type_name,
)


@singledispatch
def evaluate(node: ast.expr, scope: Scope, checker: Checker) -> Value:
    """Return the possible values of an expression; by default, evaluate the expressions in it."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):
            checker.evaluate(child, scope)
    return UNKNOWN


@evaluate.register(ast.Constant)
def _constant(node: ast.Constant, _scope: Scope, _checker: Checker) -> Value:
    return Constant(node.value)


@evaluate.register(ast.Name)
def _name(node: ast.Name, scope: Scope, checker: Checker) -> Value:
    found = lookup(node.id, scope, checker)
    if found is None:
        return UNKNOWN
    attributes.check_read(found, node, scope, checker)
    is_top = scope.local(node.id) is None
    if is_top and node.id in scope.module.changed and not scope.is_global(node.id):
        checker.report("CM808", node, scope, node.id)
    return found


@evaluate.register(ast.Attribute)
def _attribute(node: ast.Attribute, scope: Scope, checker: Checker) -> Value:
    base = checker.evaluate(node.value, scope)
    return attributes.attribute(base, node.attr, node, scope, checker)


@evaluate.register(ast.Call)
def _call(node: ast.Call, scope: Scope, checker: Checker) -> Value:
    return calls.evaluate_call(node, scope, checker)


@evaluate.register(ast.Lambda)
def _lambda(node: ast.Lambda, scope: Scope, _checker: Checker) -> Value:
    return Function(FunctionDefinition(node, scope))


@evaluate.register(ast.NamedExpr)
def _walrus(node: ast.NamedExpr, scope: Scope, checker: Checker) -> Value:
    value = checker.evaluate(node.value, scope)
    bind_target(node.target, value, scope, checker)
    return value


@evaluate.register(ast.List)
@evaluate.register(ast.Tuple)
@evaluate.register(ast.Set)
def _display(node: ast.List | ast.Tuple | ast.Set, scope: Scope, checker: Checker) -> Value:
    kind = type(node).__name__.lower()
    members = [_member(each, scope, checker, is_ordered=kind != "set") for each in node.elts]
    if kind == "tuple" and not any(isinstance(each, ast.Starred) for each in node.elts):
        return row(*members)
    return collection(kind, join(*members) if members else UNKNOWN)


@evaluate.register(ast.Starred)
def _starred(node: ast.Starred, scope: Scope, checker: Checker) -> Value:
    return _member(node, scope, checker, is_ordered=True)


@evaluate.register(ast.Dict)
def _dict(node: ast.Dict, scope: Scope, checker: Checker) -> Value:
    keys = [checker.evaluate(key, scope) for key in node.keys if key is not None]
    items = []
    for key, value in zip(node.keys, node.values, strict=True):
        given = checker.evaluate(value, scope)
        items.append(item_of(given) if key is None else given)
    return collection("dict", join(*keys) if keys else UNKNOWN, item=join(*items) if items else UNKNOWN)


@evaluate.register(ast.ListComp)
@evaluate.register(ast.SetComp)
@evaluate.register(ast.GeneratorExp)
def _comprehension(
    node: ast.ListComp | ast.SetComp | ast.GeneratorExp, scope: Scope, checker: Checker
) -> Value:
    inside = scope.child()
    is_any = _follow_generators(node.generators, inside, checker, is_ordered=isinstance(node, ast.ListComp))
    element = checker.evaluate(node.elt, inside)
    kind = {ast.ListComp: "list", ast.SetComp: "set", ast.GeneratorExp: "iterator"}[type(node)]
    return collection(kind, element, unordered=is_any and kind == "iterator")


@evaluate.register(ast.DictComp)
def _dict_comprehension(node: ast.DictComp, scope: Scope, checker: Checker) -> Value:
    inside = scope.child()
    _follow_generators(node.generators, inside, checker, is_ordered=True)
    key = checker.evaluate(node.key, inside)
    return collection("dict", key, item=checker.evaluate(node.value, inside))


@evaluate.register(ast.BinOp)
def _binary(node: ast.BinOp, scope: Scope, checker: Checker) -> Value:
    left, right = checker.evaluate(node.left, scope), checker.evaluate(node.right, scope)
    special = operators.follow_operator(left, node.op, right, node, checker)
    if special != UNKNOWN:
        return special
    if isinstance(node.op, ast.Mod) and type_name(left) == "builtins.str":
        order.check_text(right, node, scope, checker)
        return TEXT
    return operators.result_of(left, node.op, right)


@evaluate.register(ast.Compare)
def _comparison(node: ast.Compare, scope: Scope, checker: Checker) -> Value:
    left = checker.evaluate(node.left, scope)
    for operator, comparator in zip(node.ops, node.comparators, strict=True):
        right = checker.evaluate(comparator, scope)
        operators.follow_comparison(left, operator, right, node, checker)
        left = right
    return Instance("builtins.bool")


@evaluate.register(ast.BoolOp)
def _boolean(node: ast.BoolOp, scope: Scope, checker: Checker) -> Value:
    return join(*(checker.evaluate(each, scope) for each in node.values))


@evaluate.register(ast.IfExp)
def _conditional(node: ast.IfExp, scope: Scope, checker: Checker) -> Value:
    checker.evaluate(node.test, scope)
    return join(checker.evaluate(node.body, scope), checker.evaluate(node.orelse, scope))


@evaluate.register(ast.Subscript)
def _subscript(node: ast.Subscript, scope: Scope, checker: Checker) -> Value:
    base = checker.evaluate(node.value, scope)
    key = checker.evaluate(node.slice, scope)
    if isinstance(node.slice, ast.Slice):
        return fresh(base) if isinstance(base, Collection) else base
    special = operators.call_special(base, ("__getitem__", "__class_getitem__"), node, checker, key)
    return join(*(_item(each, key, node, scope, checker) for each in options(base)), special)


@evaluate.register(ast.JoinedStr)
def _formatted(node: ast.JoinedStr, scope: Scope, checker: Checker) -> Value:
    for part in node.values:
        if not isinstance(part, ast.FormattedValue):
            continue
        value = checker.evaluate(part.value, scope)
        operators.call_special(value, operators.TEXT, part.value, checker)
        order.check_text(value, part.value, scope, checker)
        if part.format_spec is not None:
            _check_format(part.format_spec, part.value, scope, checker)
    return TEXT


@evaluate.register(ast.Await)
def _await(node: ast.Await, scope: Scope, checker: Checker) -> Value:
    checker.report("CM502", node, scope, "await")
    return checker.evaluate(node.value, scope)


@evaluate.register(ast.Yield)
def _yield(node: ast.Yield, scope: Scope, checker: Checker) -> Value:
    if node.value is not None:
        scope.yielded.append(checker.evaluate(node.value, scope))
    return UNKNOWN


@evaluate.register(ast.YieldFrom)
def _yield_from(node: ast.YieldFrom, scope: Scope, checker: Checker) -> Value:
    value = checker.evaluate(node.value, scope)
    order.check_iteration(value, node.value, scope, checker)
    scope.yielded.append(element_of(value))
    return UNKNOWN


def _member(node: ast.expr, scope: Scope, checker: Checker, *, is_ordered: bool) -> Value:
    """Return a member of a list, tuple or set in the source; for a starred one, the members that it adds."""
    if not isinstance(node, ast.Starred):
        return checker.evaluate(node, scope)
    value = checker.evaluate(node.value, scope)
    if is_ordered:
        order.check_iteration(value, node, scope, checker)
    return element_of(value)


def _follow_generators(
    generators: Sequence[ast.comprehension], inside: Scope, checker: Checker, *, is_ordered: bool
) -> bool:
    is_any = False
    for generator in generators:
        iterated = checker.evaluate(generator.iter, inside)
        is_any = is_any or is_unordered(iterated)
        if is_ordered:
            order.check_iteration(iterated, generator.iter, inside, checker)
        if generator.is_async:
            checker.report("CM502", generator.target, inside, "async for")
        bind_target(generator.target, operators.iterate(iterated, generator.iter, checker), inside, checker)
        for test in generator.ifs:
            checker.evaluate(test, inside)
    return is_any


def _item(base: Value, key: Value, node: ast.Subscript, scope: Scope, checker: Checker) -> Value:
    """Return the possible values of a subscript, also of `sys.modules` and of the `__dict__` of a module."""
    if isinstance(key, Constant) and isinstance(key.value, str):
        if isinstance(base, External) and base.name == "sys.modules":
            return External(key.value)
        if isinstance(base, External) and base.name.endswith(".__dict__"):
            module = External(base.name.removesuffix(".__dict__"))
            return attributes.attribute(module, key.value, node, scope, checker)
        if isinstance(base, Package):
            return attributes.attribute(base, key.value, node, scope, checker)
    match base, key:
        case Collection(parts=parts), Constant(value=int(place)) if -len(parts) <= place < len(parts):
            return parts[place]
        case _:
            return item_of(base)


def _check_format(spec: ast.expr, node: ast.expr, scope: Scope, checker: Checker) -> None:
    texts = spec.values if isinstance(spec, ast.JoinedStr) else []
    last = texts[-1] if texts else None
    if isinstance(last, ast.Constant) and str(last.value).endswith("n"):
        checker.report("CM304", node, scope, f"the format {last.value!r}")
    for text in texts:
        if isinstance(text, ast.FormattedValue):
            checker.evaluate(text.value, scope)
