"""The guard: a handler fails if it calls a clock, a random generator or I/O outside its context.

In handlers of `guarded(app)`, `datetime.now()`, `uuid4()`, `open()` and the like raise `NondeterminismError`, which
names the call, the line and the alternative. A handler that catches it fails all the same. Other threads are not
affected. The guard finds mistakes; it is not a sandbox.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import datetime
from threading import Lock, get_ident
from types import FunctionType, MappingProxyType, ModuleType
from typing import Any

from handlers.app import App, HandlerDefinition
from handlers.errors import NondeterminismError
from handlers.guard_patches import GUARDS, INSTALLED, ORIGINALS, guard_audit_events, guard_modules, running
from handlers.handler import Handler

__all__ = ["guarded"]

_OURS = frozenset({"handlers", "runtime", "eventstore"})
_clock = vars(sys.modules[datetime.__module__])
_preparing = Lock()


class GuardedApp(App):
    """An app whose handlers run under the guard, even after it was unpickled in another process."""

    def __init__(self, *handlers: type[Handler[Any]], name: str | None = None) -> None:
        super().__init__(*handlers, name=name)
        with _preparing:
            _guard_process()
        for definition in self.handlers.values():
            _guard_routes(definition)


def guarded(app: App) -> App:
    """Return the app with its handlers under guard. The given app is unchanged.

    Each message costs a little more, and so does each lookup in the guarded modules for the rest of the process:
    docs/testing.md has the figures.
    """
    if isinstance(app, GuardedApp):
        return app
    return GuardedApp(*app.handler_types, name=app.name).keyed(app.draw_key)


@functools.cache
def _guard_process() -> None:
    guard_modules()
    guard_audit_events()


def _guard_routes(definition: HandlerDefinition) -> None:
    routes = definition.routes
    methods = [method for route in routes.values() for method in route.revisions.values()]
    messages = [route.message_type for route in routes.values()]
    rebind = Bindings([definition.handler_type, definition.state_type, *messages], methods).rebind
    rebind()

    guarded_routes = {}
    for name, route in routes.items():
        revisions = {revision: _guard_method(method, rebind) for revision, method in route.revisions.items()}
        guarded_routes[name] = replace(route, revisions=revisions)
    definition.routes = MappingProxyType(guarded_routes)


def _guard_method(method: Callable[..., Any], before: Callable[[], None]) -> Callable[..., Any]:
    """Return a guarded method, which raises its first violation even if the original catches it."""

    @functools.wraps(method)
    def run(state: Any, message: Any, context: Any) -> Any:  # noqa: ANN401 - a handler's own
        before()
        thread = get_ident()
        violations: list[NondeterminismError] = []
        running[thread] = violations
        try:
            return method(state, message, context)
        finally:
            del running[thread]
            if violations:
                raise violations[0]

    return run


class Bindings:
    """Rebinds names of nondeterministic functions in user modules, as bound by `from uuid import uuid4`, to guards.

    The modules are those that define the handlers, and the user modules that these import.
    """

    def __init__(self, classes: Iterable[type], methods: Iterable[Callable[..., Any]]) -> None:
        self._roots = [found for each in classes for found in map(_module_of, each.__mro__) if found]
        self._globals = [getattr(method, "__globals__", {}) for method in methods]
        self._packages = {root.__name__.partition(".")[0] for root in self._roots}
        self._seen_modules = 0
        self._seen_clock: object = None

    def rebind(self) -> None:
        """Rebind the names if modules were imported, or a test replaced the clock, since the last call."""
        if self._seen_clock is _clock["datetime"] and self._seen_modules == len(sys.modules):
            return
        self._seen_clock, self._seen_modules = _clock["datetime"], len(sys.modules)
        # By the identity of the original, or of a test's replacement for it.
        guards = {id(original): GUARDS[key] for key, original in ORIGINALS.items()}
        guards |= {id(vars(sys.modules[module])[name]): guard for (module, name), guard in GUARDS.items()}
        for names in (*self._globals, *map(vars, self._modules())):
            for name, value in list(names.items()):
                guard = guards.get(id(value))
                if guard is not None and guard is not value:
                    names[name] = guard

    def _modules(self) -> Iterator[ModuleType]:
        modules: dict[str, ModuleType] = {}
        waiting = [root for root in self._roots if self._is_users(root)]
        while waiting:
            module = waiting.pop()
            if module.__name__ not in modules:
                modules[module.__name__] = module
                used = map(_module_of, list(vars(module).values()))
                waiting += [each for each in used if each is not None and self._is_users(each)]
        yield from modules.values()

    def _is_users(self, module: ModuleType) -> bool:
        package = module.__name__.partition(".")[0]
        if package in _OURS or (package in sys.stdlib_module_names and package != "__main__"):
            return False
        path = str(getattr(module, "__file__", None) or "")
        return package in self._packages or not any(part in path for part in INSTALLED)


def _module_of(value: object) -> ModuleType | None:
    """Return a module itself, or the one that defines a value or its class. Reads no attributes of an instance."""
    kind = type(value)
    if issubclass(kind, ModuleType):
        return value  # type: ignore[return-value] # as was just asked
    name = getattr(value if issubclass(kind, type | FunctionType) else kind, "__module__", None)
    return sys.modules.get(name) if isinstance(name, str) else None
