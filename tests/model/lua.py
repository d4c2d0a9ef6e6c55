"""Lua, as much of it as the scripts of keys in Redis need: `if`, `local`, `return`, calls, `or`, `==`, `~=` and `..`.

A script is compiled to functions of its variables. What is beyond this part of the language is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

Names = dict[str, Any]
Expression = Callable[[Names], Any]
Statement = Callable[[Names], "Returned | None"]

_TOKEN = re.compile(
    r"\s*(?:(?P<text>'[^']*')|(?P<number>\d+)|(?P<name>[A-Za-z_]\w*)|(?P<sign>\.\.|==|~=|[=.,()\[\]]))"
)
_NOT_NAMES = frozenset({
    "and", "do", "else", "elseif", "end", "false", "for", "function", "if", "in", "local", "nil", "not", "or", "repeat",
    "return", "then", "true", "until", "while",
})  # fmt: skip
_OF_PATTERNS = re.compile(r"%(.)")


class LuaError(Exception):
    """Raised for a script that cannot be read, or that fails."""


class Returned(NamedTuple):
    """What a script returned."""

    value: Any


@cache
def compiled(script: str) -> Callable[[Mapping[str, Any]], Any]:
    """Return a script as a function of its global names, which returns what it does, None for nothing."""
    statements = _Parser(script).script()

    def run(names: Mapping[str, Any]) -> Any:
        returned = _executed(statements, {**names, "string": {"match": match}})
        return None if returned is None else returned.value

    return run


def match(text: str, pattern: str) -> tuple[str | None, ...]:
    """Find a pattern of Lua in a text: what its groups caught, or nil."""
    found = re.search(_OF_PATTERNS.sub(r"\\\1", pattern), text)
    return (None,) if found is None else found.groups() or (found[0],)


def is_true(value: Any) -> bool:
    """Say whether Lua takes a value for true: 0 and empty texts are."""
    return value is not None and value is not False


class _Parser:
    def __init__(self, script: str) -> None:
        self._tokens = [*_tokens(script), ""]
        self._at = 0

    def script(self) -> list[Statement]:
        statements = self._block()
        self._take("")
        return statements

    def _block(self) -> list[Statement]:
        statements = []
        while self._next not in {"end", ""}:
            statements.append(self._statement())
        return statements

    def _statement(self) -> Statement:
        if self._takes("if"):
            condition = self._expression()
            self._take("then")
            body = self._block()
            self._take("end")
            return lambda names: _executed(body, names) if is_true(condition(names)) else None
        if self._takes("return"):
            returned = self._expression()
            return lambda names: Returned(returned(names))
        if self._takes("local"):
            return self._assignment()
        return _ignored(self._expression())

    def _assignment(self) -> Statement:
        targets = [self._token()]
        while self._takes(","):
            targets.append(self._token())
        self._take("=")
        several = self._expression(several=True)

        def assign(names: Names) -> None:
            values = several(names)
            given = values if isinstance(values, tuple) else (values,)
            names.update(zip(targets, [*given, *[None] * len(targets)], strict=False))

        return assign

    def _expression(self, *, several: bool = False) -> Expression:
        left = self._compared(several=several)
        while self._takes("or"):
            left = _or(left, self._compared())
        return left

    def _compared(self, *, several: bool = False) -> Expression:
        left = self._joined(several=several)
        if self._takes("=="):
            return _equal(left, self._joined(), is_so=True)
        if self._takes("~="):
            return _equal(left, self._joined(), is_so=False)
        return left

    def _joined(self, *, several: bool = False) -> Expression:
        left = self._operand(several=several)
        if self._takes(".."):
            return _join(left, self._joined())
        return left

    def _operand(self, *, several: bool) -> Expression:
        token = self._token()
        if token.startswith("'"):
            return _constant(token[1:-1])
        if token.isdigit():
            return _constant(int(token))
        if token in _NOT_NAMES or not token.isidentifier():
            raise LuaError(f"There is {token!r} where a value is expected.")
        value: Expression = _variable(token)
        while True:
            if self._takes("."):
                value = _item(value, _constant(self._token()))
            elif self._takes("["):
                value = _item(value, self._expression())
                self._take("]")
            elif self._takes("("):
                value = _call(value, self._arguments())
            else:
                return value if several else _first(value)

    def _arguments(self) -> list[Expression]:
        arguments = []
        while not self._takes(")"):
            arguments.append(self._expression())
            if self._next != ")":
                self._take(",")
        return arguments

    @property
    def _next(self) -> str:
        return self._tokens[self._at]

    def _token(self) -> str:
        self._at += 1
        return self._tokens[self._at - 1]

    def _takes(self, token: str) -> bool:
        is_next = self._next == token
        self._at += is_next
        return is_next

    def _take(self, token: str) -> None:
        if not self._takes(token):
            raise LuaError(f"There is {self._next!r} where {token!r} is expected.")


def _tokens(script: str) -> list[str]:
    tokens, at = [], 0
    while script[at:].strip():
        found = _TOKEN.match(script, at)
        if found is None:
            raise LuaError(f"This is not understood: {script[at:].strip()!r}")
        tokens.append(found[0].strip())
        at = found.end()
    return tokens


def _executed(statements: Sequence[Statement], names: Names) -> Returned | None:
    for statement in statements:
        returned = statement(names)
        if returned is not None:
            return returned
    return None


def _ignored(expression: Expression) -> Statement:
    def statement(names: Names) -> None:
        expression(names)

    return statement


def _constant(value: Any) -> Expression:
    return lambda _: value


def _variable(name: str) -> Expression:
    return lambda names: names[name]


def _first(expression: Expression) -> Expression:
    def first(names: Names) -> Any:
        value = expression(names)
        return value[0] if isinstance(value, tuple) else value

    return first


def _item(table: Expression, key: Expression) -> Expression:
    return lambda names: table(names).get(key(names))


def _call(function: Expression, arguments: Sequence[Expression]) -> Expression:
    return lambda names: function(names)(*[each(names) for each in arguments])


def _or(left: Expression, right: Expression) -> Expression:
    def either(names: Names) -> Any:
        value = left(names)
        return value if is_true(value) else right(names)

    return either


def _equal(left: Expression, right: Expression, *, is_so: bool) -> Expression:
    def compare(names: Names) -> bool:
        one, other = left(names), right(names)
        return (type(one) is type(other) and one == other) is is_so

    return compare


def _join(left: Expression, right: Expression) -> Expression:
    def join(names: Names) -> str:
        parts = left(names), right(names)
        if not all(isinstance(part, str | int) and not isinstance(part, bool) for part in parts):
            raise LuaError("attempt to concatenate what is no text")
        return "".join(map(str, parts))

    return join
