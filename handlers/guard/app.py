"""The guarded app: an app whose handlers run under guard."""

from __future__ import annotations

import functools
from dataclasses import replace
from threading import Lock
from types import MappingProxyType
from typing import Any

from handlers.app import App, HandlerDefinition
from handlers.guard.audit_events import guard_audit_events
from handlers.guard.bindings import Bindings
from handlers.guard.modules import guard_modules
from handlers.guard.running import guard_method
from handlers.handler import Handler

_preparing = Lock()


class GuardedApp(App):
    """An app whose handlers run under guard, also after unpickling in another process."""

    def __init__(self, *handlers: type[Handler[Any]], name: str | None = None) -> None:
        super().__init__(*handlers, name=name)
        _guard_process()
        for definition in self.handlers.values():
            _guard_routes(definition)


def guarded(app: App) -> App:
    """Return the app with its handlers under guard; the given app stays without.

    Each message costs a little more, and so does each lookup in the guarded modules for the rest of the process:
    docs/testing.md has the figures.
    """
    if isinstance(app, GuardedApp):
        return app
    return GuardedApp(*app.handler_types, name=app.name).keyed(app.draw_key)


def _guard_process() -> None:
    with _preparing:
        _guard_process_once()


@functools.cache
def _guard_process_once() -> None:
    guard_modules()
    guard_audit_events()


def _guard_routes(definition: HandlerDefinition) -> None:
    routes = definition.routes.values()
    methods = [method for route in routes for method in route.revisions.values()]
    classes = [definition.handler_type, definition.state_type, *(route.message_type for route in routes)]
    bindings = Bindings(classes, methods)
    bindings.rebind()
    definition.routes = MappingProxyType(
        {
            name: replace(
                route,
                revisions={
                    revision: guard_method(method, bindings.rebind)
                    for revision, method in route.revisions.items()
                },
            )
            for name, route in definition.routes.items()
        }
    )
