"""The supervised app: an app whose handlers are called through a supervisor."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from types import MappingProxyType
from typing import Protocol, TypeVar

from handlers import App
from handlers.app import HandlerDefinition
from handlers.route import Method, Route

T = TypeVar("T", App, HandlerDefinition)


class Supervisor(Protocol):
    """Calls handlers, and watches over the validators of their messages."""

    def supervise(self, method: Method) -> Method:
        """Return a method that calls this one. Raises `CallTimedOutError` and `CallCrashedError` beside its errors."""
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
            name: replace(route, revisions=_revisions(route, supervisor))
            for name, route in definition.routes.items()
        }
    )
    return copy


def _revisions(route: Route, supervisor: Supervisor) -> Mapping[int, Method]:
    return {
        number: functools.wraps(method)(supervisor.supervise(method))
        for number, method in route.revisions.items()
    }


def _copy(of: T) -> T:
    copy = object.__new__(type(of))
    vars(copy).update(vars(of))
    return copy
