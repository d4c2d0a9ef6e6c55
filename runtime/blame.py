"""Where in the user's own code an error was raised: not in this project's packages, nor in what is installed."""

from __future__ import annotations

import sysconfig
import traceback
from pathlib import Path

_OURS = tuple(
    f"{Path(__file__).resolve().parents[1] / name}/" for name in ("eventstore", "handlers", "runtime")
)
_PYTHONS = f"{sysconfig.get_path('stdlib')}/"
_INSTALLED = ("/site-packages/", "/dist-packages/")


def users_frame(error: BaseException) -> traceback.FrameSummary | None:
    """Return the innermost line of the user's code in the trace of an error, None when there is none."""
    frames = traceback.extract_tb(error.__traceback__)
    return next((frame for frame in reversed(frames) if _is_users(frame.filename)), None)


def _is_users(file: str) -> bool:
    # A virtual environment may be in Python's folder, and a project in a virtual environment's.
    if file.startswith("<frozen") or any(name in file for name in _INSTALLED):
        return False
    return not file.startswith((*_OURS, _PYTHONS))
