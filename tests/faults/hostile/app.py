"""An app for hostile messages: business ids of each kind, and a handler that does what it is told to."""

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from uuid import UUID

from pydantic import StrictInt, field_validator

from handlers import App, Context, Handler, Message, State, handles


class Count(State):
    count: int = 0


class Named(Message):
    name: str
    amount: int = 1


class Numbered(Message):
    number: StrictInt
    amount: int = 1


class Told(Message):
    """A message for an object that is named by a UUID, which says what its handler does."""

    key: UUID
    what: str = ""
    times: int = 1

    @field_validator("what")
    @classmethod
    def check(cls, what: str) -> str:
        return _sleep() if what == "check for ever" else what


class Echo(Message):
    text: str


class OddError(Exception):
    """An error that cannot be shown."""

    def __str__(self) -> str:
        raise ValueError("no text")

    __repr__ = __str__


class Names(Handler[Count]):
    @handles(by="name")
    def named(self, state: Count, message: Named, context: Context) -> Count:
        return state.model_copy(update={"count": state.count + message.amount})


class Numbers(Handler[Count]):
    @handles(by="number")
    def numbered(self, state: Count, message: Numbered, context: Context) -> Count:
        return state.model_copy(update={"count": state.count + message.amount})


class Keys(Handler[Count]):
    @handles(by="key")
    def told(self, state: Count, message: Told, context: Context) -> Count:
        done: Count = _DEEDS.get(message.what, _echo)(state, message, context)
        return done


def _echo(state: Count, message: Told, context: Context) -> Count:
    for _ in range(message.times):
        context.publish(Echo(text=message.what))
    return state.model_copy(update={"count": state.count + 1})


def _recurse(state: Count, message: Told, context: Context) -> Count:
    return _recurse(state, message, context)


def _sleep(*_: object) -> Any:
    time.sleep(3600)


def _sleep_and_catch(*_: object) -> Count:
    with suppress(BaseException):
        _sleep()
    return Count(count=1)


def _die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _leave(*_: object) -> None:
    os._exit(0)


def _raise(error: BaseException) -> Count:
    raise error


_DEEDS: dict[str, Callable[..., Any]] = {
    "recurse": _recurse,
    "raise odd": lambda *_: _raise(OddError()),
    "raise half": lambda *_: _raise(ValueError("half \udcff, a line\nand \x1b[2J")),
    "raise stop": lambda *_: _raise(StopIteration("stop")),
    "raise memory": lambda *_: _raise(MemoryError()),
    "raise group": lambda *_: _raise(ExceptionGroup("several", [ValueError("a"), OddError()])),
    "return nothing": lambda *_: None,
    "return message": lambda state, message, context: message,
    "return half": lambda state, message, context: state.model_copy(update={"count": "\udcff"}),
    "publish no message": lambda state, message, context: context.publish("text"),
    "sleep for ever": _sleep,
    "sleep and catch": _sleep_and_catch,
    "be killed": _die,
    "leave": _leave,
    "publish half": lambda state, message, context: context.publish(Echo(text="\udcff")),
}

app = App(Names, Numbers, Keys)
