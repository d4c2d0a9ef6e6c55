"""A diary: a handler that tells all that it was given, and does on request what no handler may do."""

import json
import random
import uuid
from collections.abc import Callable
from typing import Any

from handlers import App, Context, Handler, Message, State, handles
from runtime.messages.envelope import Envelope, canonical

SKY = {"colour": "blue"}
"""The environment: what a handler sees of it is captured."""

NOISE = {"bytes": 4000}
"""How much noise there is to capture."""

DIARY = "d-1"


class Write(Message):
    diary: str
    line: str


class Ponder(Message):
    diary: str


class Misbehave(Message):
    diary: str
    how: str


class Wrote(Message):
    """A line was written: all that the handler was told."""

    line: str
    on_page: tuple[str, ...]
    page_was_a: str
    guid: uuid.UUID
    chance: float
    now: str
    colour: str
    headers: tuple[tuple[str, str], ...]


class Pondered(Message):
    lines: int


class DiaryData(State):
    """The lines in their order, and the different words in them."""

    lines: tuple[str, ...] = ()
    words: frozenset[str] = frozenset()
    weight: float = 0


class Diary(Handler[DiaryData]):
    """What is written of one person. The order of lines matters."""

    @handles(by="diary")
    def write(self, state: DiaryData, message: Write, context: Context) -> DiaryData:
        lines = (*state.lines, message.line)
        context.publish(
            Wrote(
                line=message.line,
                on_page=lines,
                page_was_a=type(state.lines).__name__,
                guid=context.new_guid(),
                chance=context.random.random(),
                now=context.now.isoformat(),
                colour=context.capture("sky", lambda: SKY["colour"]),
                headers=tuple(sorted(context.headers.items())),
            ),
            headers={"line": str(len(lines))},
        )
        return state.model_copy(update={"lines": lines, "words": state.words | set(message.line.split())})

    @handles(by="diary")
    def ponder(self, state: DiaryData, message: Ponder, context: Context) -> DiaryData:
        context.publish(Pondered(lines=len(state.lines)))
        return state

    @handles(by="diary")
    def misbehave(self, state: DiaryData, message: Misbehave, context: Context) -> DiaryData:
        done: DiaryData = DEEDS[message.how](state, context)
        return done


def _set_attribute(state: DiaryData, context: Context) -> DiaryData:
    object.__setattr__(state, "lines", ("forged",))
    return state


def _set_in_dict(state: DiaryData, context: Context) -> DiaryData:
    state.__dict__["lines"] = ("forged",)
    return DiaryData(lines=("other",))


def _set_and_fail(state: DiaryData, context: Context) -> DiaryData:
    object.__setattr__(state, "lines", ("forged",))
    raise ValueError("after forging")


def _fail(state: DiaryData, context: Context) -> DiaryData:
    context.publish(Pondered(lines=99))
    raise ValueError("no more ink")


class UnspeakableError(Exception):
    def __str__(self) -> str:
        raise ValueError("unspeakable")


def _recurse(state: DiaryData, context: Context) -> DiaryData:
    return _recurse(state, context)


def _capture_noise(state: DiaryData, context: Context) -> DiaryData:
    noise = context.capture("noise", lambda: random.randbytes(NOISE["bytes"]))
    context.publish(Pondered(lines=sum(noise)))
    return state


def _fail_under_a_dark_sky(state: DiaryData, context: Context) -> DiaryData:
    if SKY["colour"] == "black":
        raise ValueError("too dark")
    context.publish(Pondered(lines=len(state.lines)))
    return state


def _raise(error: BaseException) -> DiaryData:
    raise error


DEEDS: dict[str, Callable[[Any, Any], Any]] = {
    "set an attribute": _set_attribute,
    "set in the dict": _set_in_dict,
    "set and fail": _set_and_fail,
    "set alike": lambda state, context: state.__dict__.update(lines=list(state.lines)) or state,
    "fail": _fail,
    "fail unspeakably": lambda state, context: _raise(UnspeakableError()),
    "exit": lambda state, context: _raise(SystemExit(3)),
    "recurse": _recurse,
    "return nothing": lambda state, context: None,
    "return a message": lambda state, context: Pondered(lines=1),
    "return a dict": lambda state, context: {"lines": []},
    "return a wrong value": lambda state, context: state.model_copy(update={"lines": (object(),)}),
    "return what does not come back": lambda state, context: state.model_copy(update={"weight": "heavy"}),
    "return an unknown field": lambda state, context: state.model_copy(update={"liens": ()}),
    "return a whole number for a real one": lambda state, context: state.model_copy(update={"weight": 7}),
    "return a text for a real one": lambda state, context: state.model_copy(update={"weight": "7"}),
    "return a list for a tuple": lambda state, context: state.model_copy(
        update={"lines": [*state.lines, "listed"]}
    ),
    "publish nothing": lambda state, context: context.publish("nothing") or state,
    "publish a number in a header": lambda state, context: (
        context.publish(Pondered(lines=1), headers={"n": 1}) or state
    ),
    "capture what is no data": lambda state, context: context.capture("x", object) or state,
    "capture twice": lambda state, context: [context.capture("x", lambda: 1) for _ in "ab"] and state,
    "fill the diary": lambda state, context: state.model_copy(
        update={"lines": ("x" * 300_000 + context.message_id,)}
    ),
    "burn the diary": lambda state, context: DiaryData(),
    "capture noise": _capture_noise,
    "draw from outside": lambda state, context: (
        context.publish(Pondered(lines=uuid.uuid4().int % 2**62)) or state
    ),
    "remember what is outside": lambda state, context: state.model_copy(
        update={"lines": (*state.lines, SKY["colour"])}
    ),
    "fail under a dark sky": _fail_under_a_dark_sky,
}

app = App(Diary)


def write(line: str, message_id: str | None = None, diary: str = DIARY, **fields: Any) -> Envelope:
    """Return a delivery of a line, by default with the line for its message id."""
    return delivery(message_id or line, "Write", {"diary": diary, "line": line}, **fields)


def ponder(message_id: str, diary: str = DIARY, **fields: Any) -> Envelope:
    return delivery(message_id, "Ponder", {"diary": diary}, **fields)


def misbehave(how: str, message_id: str = "bad", diary: str = DIARY, **fields: Any) -> Envelope:
    return delivery(message_id, "Misbehave", {"diary": diary, "how": how}, **fields)


def delivery(message_id: str, message_type: str, body: Any, **fields: Any) -> Envelope:
    """Return a delivery with a body that is made JSON, unless it is text or bytes."""
    written = body if isinstance(body, str | bytes) else json.dumps(body)
    return Envelope(canonical(message_id), message_type, written, **fields)
