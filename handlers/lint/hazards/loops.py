"""Loops whose result does not depend on their order: they add to sets, count, or search for a member.

The loop must not change what decides whether something is added or counted.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

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
