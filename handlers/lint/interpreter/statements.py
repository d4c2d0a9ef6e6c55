"""Statements: followed in their order, both branches of a condition, and loops twice."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from functools import singledispatch

from handlers.lint.checker import Checker
from handlers.lint.hazards import loops, mutation, order
from handlers.lint.interpreter import operators
from handlers.lint.interpreter.targets import bind_target
from handlers.lint.resolution.annotations import annotated
from handlers.lint.resolution.decorators import decorated
from handlers.lint.resolution.lookup import imported
from handlers.lint.source.bindings import imported_names
from handlers.lint.values import (
    UNKNOWN,
    Class,
    Collection,
    Function,
    FunctionDefinition,
    Scope,
    Value,
    collection,
    element_of,
    join,
    owned,
)

_PASSES = 2
_TRUTH = ("__bool__", "__len__")


def execute_all(body: Sequence[ast.stmt], scope: Scope, checker: Checker) -> None:
    """Follow statements one after another."""
    for position, statement in enumerate(body):
        following = body[position + 1] if position + 1 < len(body) else None
        if isinstance(statement, ast.Assign) and _is_sorted_by(following, statement):
            value = order.orderless(statement.value, scope, checker)
            bind_target(statement.targets[0], collection("list", element_of(value)), scope, checker)
        else:
            execute(statement, scope, checker)


@singledispatch
def execute(statement: ast.stmt, scope: Scope, checker: Checker) -> None:
    """Follow a statement; by default, evaluate the expressions in it."""
    for child in ast.iter_child_nodes(statement):
        if isinstance(child, ast.expr):
            checker.evaluate(child, scope)


@execute.register(ast.Import)
@execute.register(ast.ImportFrom)
def _import(statement: ast.Import | ast.ImportFrom, scope: Scope, checker: Checker) -> None:
    for name, binding in imported_names(statement):
        if name != "*":
            scope.bind(name, imported(binding, scope.module, checker))


@execute.register(ast.Global)
def _global(statement: ast.Global, scope: Scope, _checker: Checker) -> None:
    scope.globals.update(statement.names)


@execute.register(ast.Nonlocal)
def _nonlocal(statement: ast.Nonlocal, scope: Scope, _checker: Checker) -> None:
    scope.nonlocals.update(statement.names)


@execute.register(ast.Assign)
def _assign(statement: ast.Assign, scope: Scope, checker: Checker) -> None:
    value = checker.evaluate(statement.value, scope)
    for target in statement.targets:
        bind_target(target, value, scope, checker)


@execute.register(ast.AnnAssign)
def _annotated_assign(statement: ast.AnnAssign, scope: Scope, checker: Checker) -> None:
    if statement.value is None:
        return
    value = checker.evaluate(statement.value, scope)
    declared = annotated(statement.annotation, scope, checker)
    is_open = value == UNKNOWN or (isinstance(value, Collection) and value.element == UNKNOWN)
    is_declared = is_open and declared != UNKNOWN
    bind_target(statement.target, owned(declared, value.owner) if is_declared else value, scope, checker)


@execute.register(ast.AugAssign)
def _augmented(statement: ast.AugAssign, scope: Scope, checker: Checker) -> None:
    added = checker.evaluate(statement.value, scope)
    target = statement.target
    held = checker.quietly(target, scope)
    mutation.check_augmented(target, held, scope, checker)
    if isinstance(target, ast.Name):
        operation = ast.BinOp(ast.Name(target.id, ast.Load()), statement.op, statement.value)
        result = checker.quietly(ast.fix_missing_locations(ast.copy_location(operation, statement)), scope)
        _check_added(held, added, statement, scope, checker)
        bind_target(target, join(held, result), scope, checker)
    else:
        mutation.check_target(target, scope, checker)


@execute.register(ast.Delete)
def _delete(statement: ast.Delete, scope: Scope, checker: Checker) -> None:
    for target in statement.targets:
        mutation.check_target(target, scope, checker)


@execute.register(ast.Return)
def _return(statement: ast.Return, scope: Scope, checker: Checker) -> None:
    if statement.value is not None:
        scope.returned.append(checker.evaluate(statement.value, scope))


@execute.register(ast.If)
def _if(statement: ast.If, scope: Scope, checker: Checker) -> None:
    operators.call_special(checker.evaluate(statement.test, scope), _TRUTH, statement.test, checker)
    _either(
        scope,
        lambda: execute_all(statement.body, scope, checker),
        lambda: execute_all(statement.orelse, scope, checker),
    )


@execute.register(ast.For)
@execute.register(ast.AsyncFor)
def _for(statement: ast.For | ast.AsyncFor, scope: Scope, checker: Checker) -> None:
    iterated = checker.evaluate(statement.iter, scope)
    if not loops.is_indifferent_loop(statement):
        order.check_iteration(iterated, statement.iter, scope, checker)
    if isinstance(statement, ast.AsyncFor):
        checker.report("CM502", statement, scope, "async for")

    def once() -> None:
        element = operators.iterate(iterated, statement.iter, checker)
        bind_target(statement.target, element, scope, checker)
        execute_all(statement.body, scope, checker)

    _repeat(scope, once)
    execute_all(statement.orelse, scope, checker)


@execute.register(ast.While)
def _while(statement: ast.While, scope: Scope, checker: Checker) -> None:
    def once() -> None:
        checker.evaluate(statement.test, scope)
        execute_all(statement.body, scope, checker)

    _repeat(scope, once)
    execute_all(statement.orelse, scope, checker)


@execute.register(ast.With)
@execute.register(ast.AsyncWith)
def _with(statement: ast.With | ast.AsyncWith, scope: Scope, checker: Checker) -> None:
    if isinstance(statement, ast.AsyncWith):
        checker.report("CM502", statement, scope, "async with")
    managers = []
    for item in statement.items:
        value = checker.evaluate(item.context_expr, scope)
        managers.append(value)
        entered = operators.call_special(value, ("__enter__", "__aenter__"), item.context_expr, checker)
        if item.optional_vars is not None:
            bind_target(item.optional_vars, value if entered == UNKNOWN else entered, scope, checker)
    execute_all(statement.body, scope, checker)
    for value in managers:
        operators.call_special(
            value, ("__exit__", "__aexit__"), statement, checker, UNKNOWN, UNKNOWN, UNKNOWN
        )


@execute.register(ast.Try)
@execute.register(ast.TryStar)
def _try(statement: ast.Try | ast.TryStar, scope: Scope, checker: Checker) -> None:
    _either(scope, lambda: execute_all(statement.body, scope, checker), lambda: None)
    for handler in statement.handlers:
        if handler.name:
            scope.bind(handler.name, UNKNOWN)
        _either(scope, lambda body=handler.body: execute_all(body, scope, checker), lambda: None)  # type: ignore[misc]
    execute_all(statement.orelse, scope, checker)
    execute_all(statement.finalbody, scope, checker)


@execute.register(ast.Match)
def _match(statement: ast.Match, scope: Scope, checker: Checker) -> None:
    subject = checker.evaluate(statement.subject, scope)
    for case in statement.cases:
        for pattern in ast.walk(case.pattern):
            name = getattr(pattern, "rest", None) or getattr(pattern, "name", None)
            if isinstance(name, str):
                is_whole = pattern is case.pattern or isinstance(case.pattern, ast.MatchOr)
                scope.bind(name, subject if is_whole else Value(owner=subject.owner))
        if case.guard is not None:
            checker.evaluate(case.guard, scope)
        _either(scope, lambda body=case.body: execute_all(body, scope, checker), lambda: None)  # type: ignore[misc]


@execute.register(ast.FunctionDef)
@execute.register(ast.AsyncFunctionDef)
def _function(statement: ast.FunctionDef | ast.AsyncFunctionDef, scope: Scope, checker: Checker) -> None:
    function = Function(FunctionDefinition(statement, scope))
    scope.bind(statement.name, function)
    scope.bind(statement.name, decorated(function, scope, checker))


@execute.register(ast.ClassDef)
def _class(statement: ast.ClassDef, scope: Scope, checker: Checker) -> None:
    scope.bind(statement.name, Class(checker.class_of(statement, scope)))


def _either(scope: Scope, one: Callable[[], None], other: Callable[[], None]) -> None:
    """Follow two branches; afterwards, a name may have its values of either."""
    before = dict(scope.names)
    one()
    after_one, scope.names = scope.names, before
    other()
    for name, value in after_one.items():
        here = scope.names.get(name)
        scope.names[name] = value if here is None or here == value else join(value, here)


def _repeat(scope: Scope, once: Callable[[], None]) -> None:
    """Follow the body of a loop, once more when it changed the values of names that the next iteration reads."""
    for _ in range(_PASSES):
        before = dict(scope.names)
        _either(scope, once, lambda: None)
        if scope.names == before:
            return


def _is_sorted_by(following: ast.stmt | None, statement: ast.Assign) -> bool:
    """Return whether the next statement sorts a list, so that its order until then does not matter."""
    match following, statement.targets:
        case (
            ast.Expr(ast.Call(func=ast.Attribute(value=ast.Name(id=sorted_name), attr="sort"), keywords=[])),
            [ast.Name(id=name)],
        ):
            return sorted_name == name
        case _:
            return False


def _check_added(held: Value, added: Value, statement: ast.AugAssign, scope: Scope, checker: Checker) -> None:
    """Report that a list is extended by the members of a set."""
    is_list = isinstance(held, Collection) and held.kind == "list"
    if isinstance(statement.op, ast.Add) and is_list:
        order.check_iteration(added, statement.value, scope, checker)
