"""Names in the user's own modules that are bound to a nondeterministic function, as by `from uuid import uuid4`.

They are bound to the guard's functions instead, which behave as the original except while a handler runs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from types import FunctionType, ModuleType
from typing import Any

from handlers.guard.modules import GUARDS, ORIGINALS

_OURS = frozenset({"handlers", "runtime", "eventstore"})
_INSTALLED = ("site-packages", "dist-packages")
_clock = vars(sys.modules[datetime.__module__])


class Bindings:
    """The names of the modules that define some handlers, and of the user's modules that these use."""

    def __init__(self, classes: Iterable[type], methods: Iterable[Callable[..., Any]]) -> None:
        self._roots = [found for each in classes for found in map(_module_of, each.__mro__) if found]
        self._globals = [getattr(method, "__globals__", {}) for method in methods]
        self._packages = {root.__name__.partition(".")[0] for root in self._roots}
        self._seen_modules = 0
        self._seen_clock: object = None

    def rebind(self) -> None:
        """Bind the names again if modules were imported, or a test replaced the clock, since the last time."""
        if self._seen_clock is not _clock["datetime"] or self._seen_modules != len(sys.modules):
            self._seen_clock, self._seen_modules = _clock["datetime"], len(sys.modules)
            self._bind()

    def _bind(self) -> None:
        """Bind each name of a guarded function to its guard."""
        guards = _guards_by_original()
        for names in (*self._globals, *map(vars, self._modules())):
            for name, value in list(names.items()):
                guard = guards.get(id(value))
                if guard is not None and guard is not value:
                    names[name] = guard

    def _modules(self) -> Iterator[ModuleType]:
        found: dict[str, ModuleType] = {}
        waiting = [root for root in self._roots if self._is_users(root)]
        while waiting:
            module = waiting.pop()
            if module.__name__ in found:
                continue
            found[module.__name__] = module
            used = map(_module_of, list(vars(module).values()))
            waiting += [each for each in used if each is not None and self._is_users(each)]
        yield from found.values()

    def _is_users(self, module: ModuleType) -> bool:
        package = module.__name__.partition(".")[0]
        if package in _OURS or (package in sys.stdlib_module_names and package != "__main__"):
            return False
        path = str(getattr(module, "__file__", None) or "")
        return package in self._packages or not any(part in path for part in _INSTALLED)


def _module_of(value: object) -> ModuleType | None:
    """Return the module that a value is, or that defines it or its class; reads no attribute of an instance."""
    kind = type(value)
    if issubclass(kind, ModuleType):
        return value  # type: ignore[return-value] # as was just asked
    name = getattr(value if issubclass(kind, type | FunctionType) else kind, "__module__", None)
    return sys.modules.get(name) if isinstance(name, str) else None


def _guards_by_original() -> dict[int, Any]:
    """Return the guards by the identity of what they replace, also of what a test has replaced it by."""
    guards = {id(original): GUARDS[key] for key, original in ORIGINALS.items()}
    guards |= {id(vars(sys.modules[module])[name]): guard for (module, name), guard in GUARDS.items()}
    return guards
