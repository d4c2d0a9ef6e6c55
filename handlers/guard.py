"""The guard: a handler fails if it calls a clock, a random generator or I/O outside its context.

In handlers of `guarded(app)`, `datetime.now()`, `uuid4()`, `open()` and the like raise `NondeterminismError`. The error
names the call, the line and the alternative. A handler that catches this error fails all the same. Other threads are
not affected. The guard finds mistakes; it is not a sandbox.
"""

import datetime as dt
import functools
import importlib
import os
import random
import sys
import threading
import zoneinfo
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from threading import Lock, get_ident
from types import FrameType, FunctionType, MappingProxyType, ModuleType
from typing import Any

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema

from handlers.app import App, Handler, HandlerDefinition
from handlers.context import Context
from handlers.errors import NondeterminismError

running: dict[int, list[NondeterminismError]] = {}
"""The violations so far, by the id of a thread that runs a handler under guard."""

INSTALLED = ("site-packages", "dist-packages")

CLOCK = "use context.now"
RANDOM = "use context.random"
GUID = "use context.new_guid()"
IO = "read data through context.capture(name, function), and publish a message for a side effect"
WAITING = "a handler does not wait; publish a message instead"

_CLOCKS = "time monotonic perf_counter process_time thread_time clock_gettime"
_LOCAL_TIME = "localtime ctime mktime tzset gmtime asctime strftime"
_DRAWS = [
    name
    for name, value in vars(random).items()
    if isinstance(getattr(value, "__self__", None), random.Random)
]
_ENVIRONMENT = (
    "getpid getppid getcwd getcwdb stat lstat access cpu_count process_cpu_count getloadavg times uname "
    "getlogin getuid geteuid getgid getegid get_terminal_size sched_getaffinity"
)


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_FUNCTIONS: Mapping[str, Mapping[str, str]] = {
    "time": {
        **dict.fromkeys(_names(_CLOCKS), CLOCK),
        **{f"{name}_ns": CLOCK for name in _CLOCKS.split()},
        **dict.fromkeys(_names(_LOCAL_TIME), CLOCK),
        "sleep": WAITING,
    },
    "random": dict.fromkeys(_DRAWS, RANDOM),  # the methods of the module's own generator
    "secrets": dict.fromkeys(_names("token_bytes token_hex token_urlsafe randbelow randbits choice"), RANDOM),
    "uuid": {**dict.fromkeys(_names("uuid1 uuid4 uuid6 uuid7"), GUID), "getnode": IO},
    "os": {"urandom": RANDOM, "getrandom": RANDOM, **dict.fromkeys(_names(_ENVIRONMENT), IO)},
    "platform": dict.fromkeys(_names("node platform uname system release version machine processor"), IO),
}
"""Guarded functions by module, each with its alternative. Functions that this version of Python lacks are skipped."""

PURE_WITH: Mapping[str, int] = {"time.gmtime": 1, "time.asctime": 1, "time.strftime": 2}
"""The number of arguments with which a function does not read the clock, as one of them is the time."""

_EVENT_FAMILIES = _names(
    "open os socket subprocess sqlite3 urllib http ftplib imaplib nntplib poplib smtplib telnetlib shutil tempfile "
    "glob pathlib pty fcntl mmap syslog webbrowser winreg msvcrt _thread"
)
"""The parts before the dot of the names of audit events for I/O."""

EVENTS: Mapping[str, str] = {"builtins.input": IO, "time.sleep": WAITING}
"""Audit events for calls other than I/O, with the alternatives. Not every version of Python has every event."""

_EXEMPT = _names(
    "importlib _frozen_importlib _frozen_importlib_external zipimport logging warnings linecache traceback "
    "zoneinfo"
)
"""Modules that may call guarded functions, because the result of a handler does not depend on these calls."""

_RUN = "_guard_method.<locals>.run"  # the function that runs a handler's method under guard


def check(call: str, instead: str) -> None:
    """Raise `NondeterminismError` if this thread runs a handler. Captured values, imports and logging are exempt.

    The error names `call`, or the public function that made the call, and the alternative `instead`.
    """
    violations = running.get(get_ident())
    if violations is None:
        return
    frames: list[FrameType] = []  # from the guarded function out to the handler's method
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - the documented way to a frame
    while frame is not None and frame.f_code.co_qualname != _RUN:
        if _module(frame) != __name__:
            frames.append(frame)
        frame = frame.f_back
    capturing = Context.capture.__code__
    if any(each.f_code is capturing or _module(each).partition(".")[0] in _EXEMPT for each in frames):
        return
    own = next((at for at, each in enumerate(frames) if not _is_library(each)), len(frames) - 1)
    if own > 0:
        call = _function(frames[own - 1]) or call
    where = _place(frames[own])
    if own < len(frames) - 1:
        where += f", called by {_place(frames[-1])}"
    error = NondeterminismError(f"{call} in {where} is not allowed, as a replay may differ: {instead}.")
    violations.append(error)  # in case the handler catches it
    raise error


def _place(frame: FrameType) -> str:
    name = frame.f_code.co_qualname.replace("<locals>.", "")
    file = frame.f_code.co_filename.replace("\\", "/").rpartition("/")[2]
    return f"{name} ({file}, line {frame.f_lineno})"


def _function(frame: FrameType) -> str | None:
    module, name = _module(frame), frame.f_code.co_qualname.removesuffix(".__init__")
    if module.startswith(("_", "collections.abc")) or name.endswith("__"):
        return None
    public = module.partition("._")[0]
    return f"{'os.path' if public in {'genericpath', 'posixpath', 'ntpath'} else public}.{name}()"


def _is_library(frame: FrameType) -> bool:
    path, package = frame.f_code.co_filename, _module(frame).partition(".")[0]
    return package in sys.stdlib_module_names or any(part in path for part in INSTALLED)


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


_holds = vars(dt)
# A test may already have replaced the classes by subclasses with a frozen clock.
_date, _datetime = (
    next(base for base in held.__mro__ if base.__module__ == "datetime") for held in (dt.date, dt.datetime)
)


class _Proxy(type):
    """The metaclass of proxies for `date` and `datetime`. Comparisons and type checks treat a proxy as `original`."""

    original: type

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, cls.original)

    def __subclasscheck__(cls, other: type) -> bool:
        return issubclass(other, cls.original)

    def __eq__(cls, other: object) -> bool:
        return other is cls or other is cls.original

    def __hash__(cls) -> int:
        return hash(cls.original)

    def live(cls) -> Any:  # noqa: ANN401 - a class like the original
        """Return the original or, if a test has replaced it in `datetime` to freeze the clock, the replacement."""
        return _holds[cls.original.__name__]


class _Constructor(metaclass=_Proxy):
    """The base of both proxies. Calling one, or validating with it in pydantic, gives an instance of `original`."""

    def __new__(cls, *args: Any, **named: Any) -> Any:  # noqa: ANN401 - Python's own, of no subclass
        return cls.live()(*args, **named)

    @classmethod
    def __get_pydantic_core_schema__(cls, _: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return handler(cls.original)


def _guarded_method(name: str, instead: str, pure_with: int = sys.maxsize) -> Any:  # noqa: ANN401 - Python's own
    """Return a class method that calls the original method under guard.

    `instead` is the alternative that the error message suggests. A call with at least `pure_with` arguments is allowed
    if no argument is None, because such a call is deterministic.
    """

    def call(cls: Any, /, *args: Any, **named: Any) -> Any:  # noqa: ANN401 - Python's own
        if _is_impure(pure_with, args, named):
            check(f"{cls.original.__name__}.{name}()", instead)
        return getattr(cls.live(), name)(*args, **named)

    return classmethod(call)


def _is_impure(pure_with: int, args: tuple[Any, ...], named: Mapping[str, Any]) -> bool:
    given = (*args, *named.values())
    return len(given) < pure_with or any(each is None for each in given)


class GuardedDate(_Constructor, _date, metaclass=_Proxy):  # type: ignore[misc, valid-type]
    """The proxy of `datetime.date`, with guards for methods that read the clock or the local time zone."""

    original = _date
    today = _guarded_method("today", CLOCK)
    fromtimestamp = _guarded_method("fromtimestamp", "use datetime.fromtimestamp() with a time zone")


class GuardedDatetime(_Constructor, _datetime, metaclass=_Proxy):  # type: ignore[misc, valid-type]
    """The proxy of `datetime.datetime`, with guards for methods that read the clock or the local time zone."""

    original = _datetime
    today = _guarded_method("today", CLOCK)
    now = _guarded_method("now", CLOCK)
    utcnow = _guarded_method("utcnow", CLOCK)
    fromtimestamp = _guarded_method("fromtimestamp", "pass a time zone, such as datetime.UTC", pure_with=2)


_look_up = ModuleType.__getattribute__


class GuardedModule(ModuleType):
    """A module whose nondeterministic functions are guarded in threads that run a handler."""

    # Overriding this also keeps Python 3.14 from reading the module's dict directly.
    def __getattribute__(self, name: str) -> Any:  # noqa: ANN401 - whatever a module holds
        if running and get_ident() in running:
            guard = _guards.get((_look_up(self, "__name__"), name))
            if guard is not None:
                return guard
        return _look_up(self, name)

    def __reduce__(self) -> tuple[Callable[[str], ModuleType], tuple[str]]:
        # Spark's pickler recognises modules by their exact type.
        return importlib.import_module, (self.__name__,)


@functools.cache
def _guard_process() -> None:
    """Install the guards of modules and classes, and an audit hook. Only the first call in a process does so."""
    for module in {name for name, _ in _guards}:
        importlib.import_module(module).__class__ = GuardedModule
    for name in ("__getitem__", "__iter__", "__len__"):
        _guard_attribute(type(os.environ), name, "os.environ")
    random.Random.seed = _guarded_seed  # type: ignore[method-assign]
    for name in ("random", "getrandbits", "randbytes"):
        _guard_attribute(random.SystemRandom, name, "random.SystemRandom()", RANDOM)
    _guard_attribute(threading.Thread, "start", "threading.Thread.start()")
    sys.addaudithook(_hear)  # costs 0.1 microseconds per event


def _guard_function(module: ModuleType, name: str, instead: str) -> Callable[..., Any]:
    call = f"{module.__name__}.{name}"
    holds, pure_with = vars(module), PURE_WITH.get(call, sys.maxsize)

    @functools.wraps(holds[name])
    def guarded(*args: Any, **named: Any) -> Any:  # noqa: ANN401 - the function's own
        if _is_impure(pure_with, args, named):
            check(f"{call}()", instead)
        return holds[name](*args, **named)

    return guarded


def _guard_attribute(owner: type, name: str, call: str, instead: str = IO) -> None:
    original = getattr(owner, name)

    @functools.wraps(original)
    def guarded(*args: Any, **named: Any) -> Any:  # noqa: ANN401 - the method's own
        if running:
            check(call, instead)
        return original(*args, **named)

    setattr(owner, name, guarded)


_seed = random.Random.seed


@functools.wraps(_seed)
def _guarded_seed(self: random.Random, a: Any = None, version: int = 2) -> None:  # noqa: ANN401 - Python's own
    if running and a is None:  # the seed comes from the operating system
        check("random.Random()", RANDOM)
    _seed(self, a, version)


_guards: dict[tuple[str, str], Any] = {  # by module and name of the guarded function
    ("datetime", "datetime"): GuardedDatetime,
    ("datetime", "date"): GuardedDate,
    **{
        (module, name): _guard_function(importlib.import_module(module), name, instead)
        for module, functions in _FUNCTIONS.items()
        for name, instead in functions.items()
        if hasattr(importlib.import_module(module), name)
    },
}
_originals = {key: vars(importlib.import_module(key[0]))[key[1]] for key in _guards}
"""The functions and classes as they were when this module was imported, by the keys of `_guards`."""


def _hear(
    event: str,
    args: tuple[Any, ...],
    # Bound as defaults, since the interpreter clears modules before the last events.
    threads: dict[int, Any] = running,
    get_thread: Callable[[], int] = get_ident,
) -> None:
    if not threads or get_thread() not in threads:
        return
    if event in EVENTS:
        check(f"{event.removeprefix('builtins.')}()", EVENTS[event])
    elif event.partition(".")[0] in _EVENT_FAMILIES:
        # `ZoneInfo` opens the file of each zone once, and its contents count as constant.
        zones = tuple(zoneinfo.TZPATH)
        if not (event == "open" and isinstance(args[0], str) and args[0].startswith(zones)):
            check(f"{event.removesuffix('.__new__')}()", IO)


_OURS = frozenset({"handlers", "runtime", "eventstore"})
_preparing = Lock()


class GuardedApp(App):
    """An app whose handlers run under guard, even after it is unpickled in another process."""

    def __init__(self, *handlers: type[Handler[Any]], name: str | None = None) -> None:
        super().__init__(*handlers, name=name)
        with _preparing:
            _guard_process()
        for definition in self.handlers.values():
            _guard_routes(definition)


def guarded(app: App) -> App:
    """Return a copy of the app whose handlers run under guard. docs/testing.md states the cost."""
    if isinstance(app, GuardedApp):
        return app
    return GuardedApp(*app.handler_types, name=app.name).keyed(app.draw_key)


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
    """Return a function that runs `before`, then the guarded method. It raises the first violation, even if caught."""

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
    """Rebinds names like `uuid4` to guards, in the modules of handlers and in the user's modules that they import."""

    def __init__(self, classes: Iterable[type], methods: Iterable[Callable[..., Any]]) -> None:
        self._roots = [found for each in classes for found in map(_module_of, each.__mro__) if found]
        self._globals = [getattr(method, "__globals__", {}) for method in methods]
        self._packages = {root.__name__.partition(".")[0] for root in self._roots}
        self._seen_modules = 0
        self._seen_clock: object = None

    def rebind(self) -> None:
        """Rebind the names. No-op unless modules were imported, or a test replaced the clock, since the last call."""
        if self._seen_clock is _holds["datetime"] and self._seen_modules == len(sys.modules):
            return
        self._seen_clock, self._seen_modules = _holds["datetime"], len(sys.modules)
        # By the identity of the original, or of a test's replacement for it.
        guards = {id(original): _guards[key] for key, original in _originals.items()}
        guards |= {id(vars(sys.modules[module])[name]): guard for (module, name), guard in _guards.items()}
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
    """Return `value` if it is a module, otherwise the module that defines `value` or its class.

    Return None if that module is not loaded. No attributes of an instance are read.
    """
    kind = type(value)
    if issubclass(kind, ModuleType):
        return value  # type: ignore[return-value] # as was just asked
    name = getattr(value if issubclass(kind, type | FunctionType) else kind, "__module__", None)
    return sys.modules.get(name) if isinstance(name, str) else None
