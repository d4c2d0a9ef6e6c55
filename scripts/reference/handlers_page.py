"""The page on what handlers are made of: each table is filled by trying it on the code."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import partial
from typing import Any, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, StrictInt, create_model

from handlers import AppError, CaptureError, Context, Message, State
from handlers.app import business_id_of
from handlers.codec import INSTEAD, PURE_FACTORIES, SCALARS, Codec, check_model
from handlers.draws import SeededRandom
from handlers.lint import RULES
from scripts.reference.markdown import code, page, table

_INTRODUCTION = """\
Why it is so is told in [Determinism](../determinism.md); how shapes change over time in
[Changing handlers](../evolution.md).
"""
_FIELDS = """\
## Types of fields

A field of a message or a state has one of these types; `App` raises `AppError` for any other. Values are stored as
JSON.
"""
_DEFAULTS = """\
All fields of a state have defaults. A `default_factory` is {factories}
or a model; others may return something else in a replay. Models are frozen and have no private attributes, no computed
fields, no excluded fields and no `extra="allow"`.
"""
_BY = """\
## What `by` takes

`@handles(by="field")` names the field with the business id, and `by="order.number"` a field of a model in it. The field
can have one alias, and no choice of aliases.
"""
_CONTEXT = """\
## Context

The third argument of a handler method.
"""
_RANDOM = """\
### context.random

The distributions of `random.Random`, such as `gauss`, raise `NotImplementedError`, as their last digit depends on the
machine.
"""
_RULES = """\
## Rules of the linter

What `consistent lint` reports ([how to use it](../determinism.md#the-linter)). CM206 and CM901 are notes.
"""
_CAPTURE = """\
## What can be captured

`context.capture("name", function)` takes a function without arguments and records what it returns; a replay returns the
record, and does not call it. A name is used once in a message.
"""


class Colour(Enum):
    """An enumeration."""

    RED = "red"


class Point(State):
    """A model in a model."""

    x: int = 0


class Loose(State):
    """A model that takes fields of any type, as far as pydantic is asked."""

    model_config = ConfigDict(arbitrary_types_allowed=True)


_VALUES: tuple[tuple[str, Any, Any], ...] = (
    ("str", str, "text"),
    ("int", int, 10**20),
    ("float", float, 0.1),
    ("bool", bool, True),
    ("bytes", bytes, b"\x00\xff"),
    ("UUID", UUID, UUID(int=1)),
    ("datetime", datetime, datetime(2026, 1, 31, 12, tzinfo=UTC)),
    ("date", date, date(2026, 1, 31)),
    ("time", time, time(12, 30)),
    ("timedelta", timedelta, timedelta(minutes=90)),
    ("Decimal", Decimal, Decimal("1.10")),
    ("None", None, None),
    ("an Enum", Colour, Colour.RED),
    ('Literal["a", "b"]', Literal["a", "b"], "a"),
    ("str | None", str | None, None),
    ("tuple[int, ...]", tuple[int, ...], (1, 2)),
    ("tuple[str, int]", tuple[str, int], ("a", 1)),
    ("frozenset[str]", frozenset[str], frozenset({"b", "a"})),
    ("a frozen model", Point, Point(x=1)),
)
_REFUSED: tuple[tuple[str, Any], ...] = (
    ("list[int]", list[int]),
    ("set[int]", set[int]),
    ("dict[str, int]", dict[str, int]),
    ("bytearray", bytearray),
    ("Any", Any),
    ("tuple", tuple),
)
_IDS: tuple[tuple[str, Any, Any], ...] = (
    ("str", str, "Order 7"),
    ("UUID", UUID, UUID("7D444840-9DC0-11D1-B245-5FFDCE74FAD2")),
    ("pydantic.StrictInt", StrictInt, 7),
    ("int", int, 7),
    ("str | None", str | None, "a"),
    ("date", date, date(2026, 1, 31)),
    ("an Enum", Colour, Colour.RED),
)
_CAPTURED: tuple[tuple[str, Any], ...] = (
    ("None", None),
    ("True", True),
    ("2**63", 2**63),
    ("2**64", 2**64),
    ("0.1", 0.1),
    ('"text"', "text"),
    (r'b"\x00"', b"\x00"),
    ("[1, 2]", [1, 2]),
    ("(1, 2)", (1, 2)),
    ('{"a": 1}', {"a": 1}),
    ("{1, 2}", {1, 2}),
    ('Decimal("1.1")', Decimal("1.1")),
    ("datetime(2026, 1, 31)", datetime(2026, 1, 31, tzinfo=UTC)),
    ("UUID(int=1)", UUID(int=1)),
)


_DRAWS = (
    "random",
    "uniform",
    "randint",
    "randrange",
    "getrandbits",
    "randbytes",
    "choice",
    "choices",
    "shuffle",
    "sample",
)


def write() -> str:
    """Return the page."""
    if missing := set(SCALARS) - {type(None)} - {kind for _, kind, _ in _VALUES}:
        message = f"The table of types lacks {missing}."
        raise LookupError(message)
    factories = ", ".join(code(each.__name__) for each in PURE_FACTORIES)
    return page(
        "Handlers",
        _INTRODUCTION,
        _FIELDS,
        table(["type", "a value", "as JSON"], _stored()),
        "What is refused, and what to write instead:",
        table(["type", "instead"], _refused()),
        _DEFAULTS.format(factories=factories),
        _BY,
        table(["type of the field", "a value", "business id"], _business_ids()),
        _CONTEXT,
        table(["", ""], _members(Context)),
        _RANDOM,
        table(["", ""], _draws()),
        _CAPTURE,
        table(["returned by the function", "what the handler gets"], _captured()),
        _RULES,
        table(
            ["code", "name", "why", "use instead"],
            [[rule.code, rule.name, rule.why, rule.instead] for rule in RULES.values()],
        ),
    )


def _stored() -> Iterator[list[str]]:
    for shown, kind, value in _VALUES:
        model = _model(State, kind)
        check_model(model)
        encoded = Codec(model).encode(model(field=value)).decode()
        yield [_kind(shown), code(_shown(value)), code(encoded.removeprefix('{"field":').removesuffix("}"))]


def _refused() -> Iterator[list[str]]:
    for shown, kind in _REFUSED:
        model = _model(Loose, kind)
        error = _error(AppError, partial(check_model, model))
        yield [
            code(shown),
            _kind(INSTEAD.get(_origin(kind), "a type of the table above")) if error else "taken",
        ]


def _origin(kind: Any) -> Any:  # noqa: ANN401 - a type expression
    return getattr(kind, "__origin__", kind)


def _business_ids() -> Iterator[list[str]]:
    for shown, kind, value in _IDS:
        message = _model(Message, kind)
        error = _error(AppError, partial(business_id_of, message, "field", "by"))
        found = f"refused: {error.rpartition(': ')[2]}" if error else code(message(field=value).field)
        yield [_kind(shown), code(_shown(value)), found]


def _members(kind: type) -> Iterator[list[str]]:
    for name, member in vars(kind).items():
        text = inspect.getdoc(member) or ""
        if isinstance(member, property):
            yield [code(f"context.{name}"), text]
        elif inspect.isfunction(member) and not name.startswith("_"):
            parameters = ", ".join(list(inspect.signature(member).parameters)[1:])
            yield [code(f"context.{name}({parameters})"), text]


def _draws() -> Iterator[list[str]]:
    for name in _DRAWS:
        member = vars(SeededRandom)[name]
        parameters = [each for each in inspect.signature(member).parameters if each != "self"]
        yield [code(f"{name}({', '.join(parameters)})"), inspect.getdoc(member) or ""]


def _captured() -> Iterator[list[str]]:
    for shown, value in _CAPTURED:
        context = Context("Handler", "id", "message", 0)
        error = _error(CaptureError, partial(context.capture, "name", partial(_given, value)))
        if error:
            yield [code(shown), "refused"]
            continue
        replay = Context("Handler", "id", "message", 0, recorded=context.captured)
        yield [code(shown), code(_shown(replay.capture("name", dict)))]


def _model(base: type[BaseModel], kind: Any) -> Any:  # noqa: ANN401 - a type expression, and a model made of it
    return create_model("Model", __base__=base, field=(kind, ...))


def _given(value: object) -> object:
    return value


def _error(kind: type[Exception], function: Callable[[], object]) -> str | None:
    """Return what a function raises, None when it returns."""
    try:
        function()
    except kind as error:
        return str(error)
    return None


def _shown(value: object) -> str:
    if isinstance(value, Enum):
        return f"{value.name} = {value.value!r}"
    return (
        f"frozenset({{{', '.join(map(repr, sorted(value)))}}})"
        if isinstance(value, frozenset)
        else repr(value)
    )


def _kind(shown: str) -> str:
    return shown if shown.startswith("a") and " " in shown else code(shown)
