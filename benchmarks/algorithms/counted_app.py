"""An app that counts how often its handlers run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from handlers import App, Context, Handler, Message, State
from handlers.handler import Method, Route


class CountedApp(App):
    """Handlers that behave as ever, and how often they ran."""

    def __init__(self, *handlers: type[Handler[Any]]) -> None:
        super().__init__(*handlers)
        self.runs = 0
        for definition in self.handlers.values():
            definition.routes = self._counted_routes(definition.routes)

    def _counted_routes(self, routes: Mapping[str, Route]) -> Mapping[str, Route]:
        return MappingProxyType({name: self._counted_route(route) for name, route in routes.items()})

    def _counted_route(self, route: Route) -> Route:
        return replace(
            route,
            revisions={revision: self._counted(method) for revision, method in route.revisions.items()},
        )

    def _counted(self, method: Method) -> Method:
        def counted(state: State, message: Message, context: Context) -> State:
            self.runs += 1
            return method(state, message, context)

        return counted
