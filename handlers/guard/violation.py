"""Violations: a handler's call of a nondeterministic function, with its line."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from threading import get_ident
from types import FrameType

from handlers.context import Context
from handlers.errors import NondeterminismError
from handlers.guard import running
from handlers.guard.nondeterministic import EXEMPT

_PATHS = ("genericpath", "posixpath", "ntpath")
_INSTALLED = ("site-packages", "dist-packages")
_PACKAGE = __name__.rpartition(".")[0]


def check(call: str, instead: str) -> None:
    """Raise `NondeterminismError` when this thread runs a handler that makes a nondeterministic call.

    It is allowed while a value is captured, and within importing, logging and the like. `call` is the name of the
    function that was called; when a library called it, the error names the library's function.
    """
    violations = running.running.get(get_ident())
    if violations is None:
        return
    frames = list(_frames())
    if any(_is_exempt(frame) for frame in frames):
        return
    error = NondeterminismError(_sentence(call, instead, frames))
    violations.append(error)
    raise error


def _frames() -> Iterator[FrameType]:
    """Yield the frames from the guarded function out to the handler's method."""
    frame: FrameType | None = sys._getframe(2)  # noqa: SLF001 - the documented way to a frame
    while frame is not None and _module(frame) != running.__name__:
        if not _module(frame).startswith(_PACKAGE):
            yield frame
        frame = frame.f_back


def _is_exempt(frame: FrameType) -> bool:
    return frame.f_code is Context.capture.__code__ or _top(_module(frame)) in EXEMPT


def _sentence(call: str, instead: str, frames: list[FrameType]) -> str:
    own = next((at for at, frame in enumerate(frames) if not _is_library(frame)), len(frames) - 1)
    if own > 0:
        call = _function(frames[own - 1]) or call
    handler, line = frames[-1], frames[own]
    where = _place(line) if line is handler else f"{_place(line)}, called by {_place(handler)}"
    return f"{call} in {where} is not allowed, as a replay may differ: {instead}."


def _place(frame: FrameType) -> str:
    name = frame.f_code.co_qualname.replace("<locals>.", "")
    return (
        f"{name} ({frame.f_code.co_filename.replace(chr(92), '/').rpartition('/')[2]}, line {frame.f_lineno})"
    )


def _function(frame: FrameType) -> str | None:
    """Return the public name of a library's function, None for an internal one."""
    module, name = _module(frame), frame.f_code.co_qualname.removesuffix(".__init__")
    if module.startswith(("_", "collections.abc")) or name.endswith("__"):
        return None
    public = module.partition("._")[0]
    return f"{'os.path' if public in _PATHS else public}.{name}()"


def _is_library(frame: FrameType) -> bool:
    path = frame.f_code.co_filename
    return _top(_module(frame)) in sys.stdlib_module_names or any(part in path for part in _INSTALLED)


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def _top(module: str) -> str:
    return module.partition(".")[0]
