"""Guarded modules: `time.time` is the guard's while a handler runs in the thread that asks, and Python's otherwise.

The modules themselves keep all that they hold, so that other threads, and whoever replaces their functions
for a test, find them as they are. A lookup in them costs a fifth of a microsecond more.
"""

from __future__ import annotations

import functools
import importlib
import os
import random
import threading
from collections.abc import Callable
from threading import get_ident
from types import MappingProxyType, ModuleType
from typing import Any

from handlers.guard.dates import GuardedDate, GuardedDatetime
from handlers.guard.entrances import CHANCE, FUNCTIONS, OUTSIDE, PURE_WITH
from handlers.guard.running import running
from handlers.guard.violation import check

_look_up = ModuleType.__getattribute__


class GuardedModule(ModuleType):
    """A module whose entrances are guarded in threads that run a handler.

    That it looks each name up itself also keeps Python 3.14 from reading the module's dict past it.
    """

    def __getattribute__(self, name: str) -> Any:  # noqa: ANN401 - whatever a module holds
        if running and get_ident() in running:
            guard = _guards.get((_look_up(self, "__name__"), name))
            if guard is not None:
                return guard
        return _look_up(self, name)

    def __reduce__(self) -> tuple[Callable[[str], ModuleType], tuple[str]]:
        """Let Spark's pickler name the module, as it does with others."""
        return importlib.import_module, (self.__name__,)


def guard_modules() -> None:
    """Guard the modules and classes of the entrances, once for this process."""
    for module in {name for name, _ in _guards}:
        importlib.import_module(module).__class__ = GuardedModule
    _guard_method(type(os.environ), "__getitem__", "os.environ")
    _guard_method(type(os.environ), "__iter__", "os.environ")
    _guard_method(type(os.environ), "__len__", "os.environ")
    random.Random.seed = _guarded_seed  # type: ignore[method-assign]
    for name in ("random", "getrandbits", "randbytes"):
        _guard_method(random.SystemRandom, name, "random.SystemRandom()", CHANCE)
    _guard_method(threading.Thread, "start", "threading.Thread.start()")


def _guard_function(module: ModuleType, name: str, instead: str) -> Callable[..., Any]:
    call, pure_with = f"{module.__name__}.{name}", PURE_WITH.get(f"{module.__name__}.{name}")
    holds = vars(module)

    @functools.wraps(holds[name])
    def guarded(*given: Any, **named: Any) -> Any:  # noqa: ANN401 - the function's own
        if pure_with is None or len(given) < pure_with:
            check(f"{call}()", instead)
        return holds[name](*given, **named)

    return guarded


def _guard_method(owner: type, name: str, call: str, instead: str = OUTSIDE) -> None:
    original = getattr(owner, name)

    @functools.wraps(original)
    def guarded(*given: Any, **named: Any) -> Any:  # noqa: ANN401 - the method's own
        if running:
            check(call, instead)
        return original(*given, **named)

    setattr(owner, name, guarded)


_seed = random.Random.seed


@functools.wraps(_seed)
def _guarded_seed(self: random.Random, a: Any = None, version: int = 2) -> None:  # noqa: ANN401 - Python's own
    if running and a is None:
        check("random.Random()", CHANCE)
    _seed(self, a, version)


def _make_guards() -> dict[tuple[str, str], Any]:
    guards: dict[tuple[str, str], Any] = {
        ("datetime", "datetime"): GuardedDatetime,
        ("datetime", "date"): GuardedDate,
    }
    for module_name, functions in FUNCTIONS.items():
        module = importlib.import_module(module_name)
        for name, instead in functions.items():
            if name in vars(module):
                guards[module_name, name] = _guard_function(module, name, instead)
    return guards


_guards = _make_guards()
GUARDS = MappingProxyType(_guards)
"""What stands for an entrance while a handler runs, by module and name."""
ORIGINALS = MappingProxyType({key: vars(importlib.import_module(key[0]))[key[1]] for key in _guards})
"""The entrances as they were when the guard was imported."""
