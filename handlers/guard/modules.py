"""Guarded modules: `time.time` is the guard's function in a thread that runs a handler, and Python's in all others.

The modules' dicts stay as they are, for other threads and for tests that replace functions in them. An attribute
lookup in a guarded module costs a fifth of a microsecond more.
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
from handlers.guard.nondeterministic import FUNCTIONS, IO, PURE_WITH, RANDOM
from handlers.guard.running import running
from handlers.guard.violation import check

_look_up = ModuleType.__getattribute__


class GuardedModule(ModuleType):
    """A module whose nondeterministic functions are guarded in threads that run a handler.

    Overriding `__getattribute__` also keeps Python 3.14 from reading the module's dict directly.
    """

    def __getattribute__(self, name: str) -> Any:  # noqa: ANN401 - whatever a module holds
        if running and get_ident() in running:
            guard = _guards.get((_look_up(self, "__name__"), name))
            if guard is not None:
                return guard
        return _look_up(self, name)

    def __reduce__(self) -> tuple[Callable[[str], ModuleType], tuple[str]]:
        """Make Spark's pickler store the name of the module, as it does for others."""
        return importlib.import_module, (self.__name__,)


def guard_modules() -> None:
    """Guard the modules and classes of the nondeterministic functions, once for this process."""
    for module in {name for name, _ in _guards}:
        importlib.import_module(module).__class__ = GuardedModule
    _guard_method(type(os.environ), "__getitem__", "os.environ")
    _guard_method(type(os.environ), "__iter__", "os.environ")
    _guard_method(type(os.environ), "__len__", "os.environ")
    random.Random.seed = _guarded_seed  # type: ignore[method-assign]
    for name in ("random", "getrandbits", "randbytes"):
        _guard_method(random.SystemRandom, name, "random.SystemRandom()", RANDOM)
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


def _guard_method(owner: type, name: str, call: str, instead: str = IO) -> None:
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
        check("random.Random()", RANDOM)
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
"""The guards by module and name of the function that they replace while a handler runs."""
ORIGINALS = MappingProxyType({key: vars(importlib.import_module(key[0]))[key[1]] for key in _guards})
"""The guarded functions as they were when the guard was imported."""
