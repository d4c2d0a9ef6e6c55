"""Violations: a call of an entrance by a handler, with the line it stands on."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from threading import get_ident
from types import FrameType

from handlers.context import Context
from handlers.errors import NondeterminismError
from handlers.guard import running
from handlers.guard.entrances import PASSING

_PATHS = ("genericpath", "posixpath", "ntpath")
_INSTALLED = ("site-packages", "dist-packages")
_PACKAGE = __name__.rpartition(".")[0]


def check(call: str, instead: str) -> None:
    """Raise `NondeterminismError` when the handler of this thread makes a call that it must not.

    It may while a value is captured; and importing, logging and the like may for it. `call` is how the entrance
    is shown unless a function of a library leads to it, which is shown then.
    """
    violations = running.running.get(get_ident())
    if violations is None:
        return
    frames = list(_frames())
    if any(_passes(frame) for frame in frames):
        return
    error = NondeterminismError(_sentence(call, instead, frames))
    violations.append(error)
    raise error


def _frames() -> Iterator[FrameType]:
    """Give the frames from the entrance out to the handler's method."""
    frame: FrameType | None = sys._getframe(2)  # noqa: SLF001 - the way to a frame
    while frame is not None and _module(frame) != running.__name__:
        if not _module(frame).startswith(_PACKAGE):
            yield frame
        frame = frame.f_back


def _passes(frame: FrameType) -> bool:
    return frame.f_code is Context.capture.__code__ or _top(_module(frame)) in PASSING


def _sentence(call: str, instead: str, frames: list[FrameType]) -> str:
    own = next((at for at, frame in enumerate(frames) if not _is_library(frame)), len(frames) - 1)
    if own > 0:
        call = _function(frames[own - 1]) or call
    handler, line = frames[-1], frames[own]
    where = _place(line) if line is handler else f"{_place(line)}, called by {_place(handler)}"
    return f"{call} in {where} may give something else each time that the message is handled: {instead}."


def _place(frame: FrameType) -> str:
    name = frame.f_code.co_qualname.replace("<locals>.", "")
    return (
        f"{name} ({frame.f_code.co_filename.replace(chr(92), '/').rpartition('/')[2]}, line {frame.f_lineno})"
    )


def _function(frame: FrameType) -> str | None:
    """Return how a library's function is shown, None for an inner one that nobody calls by its name."""
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
