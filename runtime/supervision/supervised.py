"""The supervised app: an app whose handlers are called through a supervisor."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from types import MappingProxyType
from typing import Protocol, TypeVar

from handlers import App, Context, Message, State
from handlers.app import HandlerDefinition
from handlers.route import Method

T = TypeVar("T", App, HandlerDefinition)


class Supervisor(Protocol):
    """Calls handlers, and watches over the validators of their messages."""

    def call(self, method: Method, state: State, message: Message, context: Context) -> State:
        """Call a method. Raises `CallTimedOutError` and `CallCrashedError` beside what the method raises."""
        ...

    def parsing(self, parsed: Sequence[object], /) -> AbstractContextManager[None]:
        """Raise `ParsingTimedOutError` in the block when it takes too long until one more is `parsed`."""
        ...


def supervised(app: App, supervisor: Supervisor) -> App:
    """Return the app with its handlers under supervision, in this process; the given app stays without."""
    copy = _copy(app)
    copy.handlers = {name: _supervised(found, supervisor) for name, found in app.handlers.items()}
    return copy


def _supervised(definition: HandlerDefinition, supervisor: Supervisor) -> HandlerDefinition:
    copy = _copy(definition)
    copy.parsing = supervisor.parsing
    copy.routes = MappingProxyType(
        {
            name: replace(
                route, revisions={number: _call(supervisor, each) for number, each in route.revisions.items()}
            )
            for name, route in definition.routes.items()
        }
    )
    return copy


def _call(supervisor: Supervisor, method: Method) -> Method:
    call = supervisor.call

    @functools.wraps(method)
    def run(state: State, message: Message, context: Context) -> State:
        return call(method, state, message, context)

    return run


def _copy(of: T) -> T:
    copy = object.__new__(type(of))
    vars(copy).update(vars(of))
    return copy
