"""Who raised an error: where in the user's own code, or somebody who wants the process to stop.

The user's code is neither in this project's packages, nor in what is installed.
"""

from __future__ import annotations

import sysconfig
import traceback
from opcode import opname
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


def is_from_outside(error: BaseException) -> bool:
    """Say whether somebody has interrupted the process, which code that raises the same error has not."""
    if not isinstance(error, KeyboardInterrupt):
        return False
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return True
    # For a signal the interpreter raises between any two instructions.
    instruction = opname[trace.tb_frame.f_code.co_code[trace.tb_lasti]]
    return instruction not in {"RAISE_VARARGS", "RERAISE"}


def _is_users(file: str) -> bool:
    # A virtual environment may be in Python's folder, and a project in a virtual environment's.
    if file.startswith("<frozen") or any(name in file for name in _INSTALLED):
        return False
    return not file.startswith((*_OURS, _PYTHONS))
