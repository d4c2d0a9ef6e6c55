"""Follows statements, expressions and calls in the order in which Python would run them."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from functools import singledispatch

from handlers.lint import calls, hazards, operators, resolution
from handlers.lint.checker import Checker
from handlers.lint.hazards import bind_target
from handlers.lint.resolution import annotated, decorated, imported, lookup
from handlers.lint.source import imported_names
from handlers.lint.values import (
    TEXT,
    UNKNOWN,
    Arguments,
    Class,
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
    owned,
    row,
    type_name,
)

# Expressions: their possible values, and the rules that they break.


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
    resolution.check_read(found, node, scope, checker)
    is_top = scope.local(node.id) is None
    if is_top and node.id in scope.module.changed and not scope.is_global(node.id):
        checker.report("CM808", node, scope, node.id)
    return found


@evaluate.register(ast.Attribute)
def _attribute(node: ast.Attribute, scope: Scope, checker: Checker) -> Value:
    base = checker.evaluate(node.value, scope)
    return resolution.attribute(base, node.attr, node, scope, checker)


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
        hazards.check_text(right, node, scope, checker)
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
        operators.call_special(value, operators.TEXT_METHODS, part.value, checker)
        hazards.check_text(value, part.value, scope, checker)
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
    hazards.check_iteration(value, node.value, scope, checker)
    scope.yielded.append(element_of(value))
    return UNKNOWN


def _member(node: ast.expr, scope: Scope, checker: Checker, *, is_ordered: bool) -> Value:
    """Return a member of a list, tuple or set in the source; for a starred one, the members that it adds."""
    if not isinstance(node, ast.Starred):
        return checker.evaluate(node, scope)
    value = checker.evaluate(node.value, scope)
    if is_ordered:
        hazards.check_iteration(value, node, scope, checker)
    return element_of(value)


def _follow_generators(
    generators: Sequence[ast.comprehension], inside: Scope, checker: Checker, *, is_ordered: bool
) -> bool:
    is_any = False
    for generator in generators:
        iterated = checker.evaluate(generator.iter, inside)
        is_any = is_any or is_unordered(iterated)
        if is_ordered:
            hazards.check_iteration(iterated, generator.iter, inside, checker)
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
            return resolution.attribute(module, key.value, node, scope, checker)
        if isinstance(base, Package):
            return resolution.attribute(base, key.value, node, scope, checker)
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


# Statements: followed in their order, both branches of a condition, and loops twice.

_PASSES = 2
_TRUTH = ("__bool__", "__len__")


def execute_all(body: Sequence[ast.stmt], scope: Scope, checker: Checker) -> None:
    """Follow statements one after another."""
    for position, statement in enumerate(body):
        following = body[position + 1] if position + 1 < len(body) else None
        if isinstance(statement, ast.Assign) and _is_sorted_by(following, statement):
            value = hazards.orderless(statement.value, scope, checker)
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
    hazards.check_augmented(target, held, scope, checker)
    if isinstance(target, ast.Name):
        operation = ast.BinOp(ast.Name(target.id, ast.Load()), statement.op, statement.value)
        result = checker.quietly(ast.fix_missing_locations(ast.copy_location(operation, statement)), scope)
        if isinstance(statement.op, ast.Add) and isinstance(held, Collection) and held.kind == "list":
            hazards.check_iteration(added, statement.value, scope, checker)
        bind_target(target, join(held, result), scope, checker)
    else:
        hazards.check_target(target, scope, checker)


@execute.register(ast.Delete)
def _delete(statement: ast.Delete, scope: Scope, checker: Checker) -> None:
    for target in statement.targets:
        hazards.check_target(target, scope, checker)


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
    if not hazards.is_indifferent_loop(statement):
        hazards.check_iteration(iterated, statement.iter, scope, checker)
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


# The interpreter: a checker that follows source, with the parts of this package, which call each other
# through it.


class Interpreter(Checker):
    """A checker that follows expressions, statements and calls."""

    def evaluate(self, node: ast.expr, scope: Scope) -> Value:
        """Return the possible values of an expression, and report what is wrong in it."""
        return evaluate(node, scope, self)

    def execute(self, body: list[ast.stmt], scope: Scope) -> None:
        """Follow statements, and report what is wrong in them."""
        execute_all(body, scope, self)

    def call(self, callee: Value, arguments: Arguments, node: ast.AST, scope: Scope) -> Value:
        """Return the possible results of a call, and report what is wrong in what is called."""
        return join(*(calls.call(each, arguments, node, scope, self) for each in options(callee)))
