"""Parsing: what counts as one message is one to its handler, in JSON and in msgpack."""

import json
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from types import new_class
from typing import Annotated, Any, Literal
from uuid import UUID

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, RootModel, create_model

from handlers import App, Context, Handler, Message, State, handles
from runtime.messages.envelope import Envelope
from runtime.messages.parsing import Prepared, is_copy, prepare


class Colour(Enum):
    RED = 1
    BLUE = "x"


class Whole(BaseModel):
    model_config = ConfigDict(frozen=True)

    v: int


class Real(BaseModel):
    model_config = ConfigDict(frozen=True)

    v: float


class Money(RootModel[Decimal]):
    model_config = ConfigDict(frozen=True)


KINDS: list[Any] = [
    *(str, int, float, bool, bytes, UUID, Decimal, datetime, date, time, timedelta, Colour),
    *(int | float, float | str, bool | int, Decimal | str, float | Decimal, int | Decimal | None),
    *(UUID | str, bytes | str, date | datetime, datetime | str, time | float, Whole | Real, Real | None),
    *(tuple[Decimal, ...], tuple[float | Decimal, ...], frozenset[float], frozenset[str] | tuple[str, ...]),
    *(Annotated[kind, Field(strict=True)] for kind in (float, Decimal, UUID, datetime, tuple[int, ...])),
    *(Literal[1, "x"], Literal[1, True], Money, tuple[Money, ...]),
]
NUMBERS = [
    "0", "-0", "0.0", "-0.0", "0e5", "-0e0", "1", "1.0", "1.00", "1e0", "10e-1", "100.0", "1E2", "1.10", "1.1",
    "1.10000000000000000000001", "0.1234567890123456789", "0.12345678901234568", "9007199254740993",
    "9007199254740993.0", "1e22", "1e23", "100000000000000000000000", "1e400", "-1e400", "1e-400", "Infinity",
    "NaN", "1700000000.123456789", "86400",
]  # fmt: skip
TEXTS = ["YWI=", "ab", "7d444840-9dc0-11d1-b245-5ffdce74fad2", "1", "1.0", "true", "x", "", "2026-01-01",
         "2026-01-01T00:00:00", "2026-01-01T00:00:00Z", "12:00:00+02:00", "PT1M", "0.1234567890123456789",
         "NaN"]  # fmt: skip
OTHERS = [
    "true", "false", "null", "[]", "{}", "[1,2]", "[2.0,1]", '["b","a"]', '{"v":1}', '{"v":1.0}', '{"v":2,"v":1}',
    "[0.1234567890123456789]", "[0.12345678901234568]", '"\\u0078"',
]  # fmt: skip


class Nothing(State):
    pass


def definition(kind: Any) -> Any:
    """Return a handler that takes a message with a value of this type."""
    said: Any = create_model("Said", __base__=Message, room=(str, ...), value=(kind, ...))

    def hear(_: Any, state: Nothing, message: Message, context: Context) -> Nothing:
        return state

    hear.__annotations__["message"] = said
    members = {"hear": handles(by="room")(hear)}
    room: Any = new_class("Room", (Handler[Nothing],), exec_body=lambda names: names.update(members))
    return App(room).handlers["Room"]


DEFINITIONS = [definition(kind) for kind in KINDS]


def deliveries(handler: Any, value: str) -> list[Prepared]:
    """Return the message with a value that is given as JSON, as it is read from JSON and from msgpack, if it is."""
    text = f'{{"room":"a","value":{value}}}'
    bodies: list[str | bytes] = [text]
    with suppress(OverflowError):  # msgpack has no such integers
        bodies.append(msgpack.packb(json.loads(text)))
    each = [prepare(handler, "a", Envelope(message_id="m", type="Said", body=body)) for body in bodies]
    is_same = len({isinstance(delivery, Prepared) for delivery in each}) == 1
    assert is_same or "e" in value.lower(), value  # in msgpack a very large number is an infinity
    return [delivery for delivery in each if isinstance(delivery, Prepared)]


def seen(message: Any) -> str:
    value = message.value
    shown = sorted(value, key=repr) if isinstance(value, frozenset) else value
    return repr((shown, message.model_fields_set))


numbers = st.from_regex(r"-?(0|[1-9][0-9]{0,20})(\.[0-9]{1,22})?([eE][+-]?[0-9]{1,2})?", fullmatch=True)


def told_apart_by_the_handler_only(handler: Any, values: Iterable[str]) -> list[set[str]]:
    """Return what a handler sees of messages that count as one."""
    found = defaultdict(set)
    for value in values:
        for delivery in deliveries(handler, value):
            found[delivery.fingerprint].add(seen(delivery.message))
            assert is_copy(delivery, delivery.fingerprint)
    return [each for each in found.values() if len(each) > 1]


@pytest.mark.parametrize("handler", DEFINITIONS, ids=map(str, KINDS))
def test_what_counts_as_one_message_is_one_to_its_handler(handler):
    assert told_apart_by_the_handler_only(handler, [*NUMBERS, *map(json.dumps, TEXTS), *OTHERS]) == []


@given(st.sampled_from(DEFINITIONS), numbers)
def test_a_number_written_in_another_way_is_another_message_or_the_same_to_its_handler(handler, number):
    exact = Decimal(number)
    spellings = {number, str(float(number)), f"{exact:f}", f"{exact:e}", f"{exact + 0}"}

    assert told_apart_by_the_handler_only(handler, sorted(spellings)) == []


@pytest.mark.parametrize("number", ["0.1234567890123456789", "1234567890123456789.5", "-1e-400"])
@pytest.mark.parametrize("kind", [Decimal, Money])
def test_messages_that_differ_in_digits_of_a_decimal_are_two(kind, number):
    handler = DEFINITIONS[KINDS.index(kind)]
    (one, *_), (as_text, *_), (shorter, *_) = (
        deliveries(handler, each) for each in (number, json.dumps(number), str(float(number)))
    )

    value = kind.model_validate(number) if kind is Money else Decimal(number)
    assert (one.message.value, is_copy(one, as_text.fingerprint)) == (value, True)  # type: ignore[attr-defined]
    assert not is_copy(one, shorter.fingerprint)
