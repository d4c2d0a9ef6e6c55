"""Processes that are forked and may be killed: what Spark's daemon does for its workers, and no more.

Nothing is started before a fork that would not survive it: no thread, no connection. So a child costs milliseconds.
"""

import ctypes
import gc
import importlib
import os
import pickle
import select
import signal
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from runtime.spark.worker import connection

_PR_SET_CHILD_SUBREAPER = 36
_NEEDED = (
    "eventstore.backends.sqlite",
    "eventstore.backends.postgres",
    "pandas",
    "pyarrow.compute",
    "pyarrow.dataset",
    "pyarrow.parquet",
)
_ends: set[int] = set()
"""Where this process and those that it was forked from write their results: not for its own children."""


class ChildFailedError(Exception):
    """Raised when a child ended by an exception; its text is the child's traceback."""

    @property
    def last_line(self) -> str:
        return str(self).rstrip().splitlines()[-1]


@dataclass(frozen=True, slots=True)
class End:
    """How a child ended: killed, or with a result."""

    is_killed: bool
    result: Any = None


class Child:
    """A forked process that runs a function, and hands over what that returns."""

    def __init__(self, run: Callable[[], Any], *, leads_group: bool = False) -> None:
        self._read, write = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._read)
            _be_child(run, write, leads_group=leads_group)
        os.close(write)
        if leads_group:  # in both, as neither knows who comes first
            with suppress(OSError):
                os.setpgid(self.pid, self.pid)

    def kill(self) -> None:
        """Send it SIGKILL; it may have ended by itself."""
        os.kill(self.pid, signal.SIGKILL)

    def kill_group(self) -> None:
        os.killpg(self.pid, signal.SIGKILL)

    def is_done(self, seconds: float) -> bool:
        """Wait so long; say whether it has ended, or is about to."""
        return bool(select.select([self._read], [], [], seconds)[0])

    def end(self) -> End:
        """Wait for it. Raises `ChildFailedError`."""
        pieces = []
        while piece := os.read(self._read, 1 << 16):
            pieces.append(piece)
        os.close(self._read)
        _, status = os.waitpid(self.pid, 0)
        if os.WIFSIGNALED(status) or not pieces:  # or it has ended itself, as a worker that hangs does
            return End(is_killed=True)
        is_well, result = pickle.loads(b"".join(pieces))
        if not is_well:
            raise ChildFailedError(result)
        return End(is_killed=False, result=result)

    def wait_for_group(self) -> None:
        """Wait until no process of its group is left, those included that lost their parent to SIGKILL."""
        with suppress(ChildProcessError):
            while True:
                os.waitpid(-self.pid, 0)


def get_ready_to_fork() -> None:
    """Import what children need, and leave what is there alone when garbage is looked for: a fork is cheap then."""
    for name in _NEEDED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()


def adopt_orphans() -> None:
    """Make this process the one that is told when a child of a killed child has ended."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


def _be_child(run: Callable[[], Any], write: int, *, leads_group: bool) -> None:
    code = 1
    try:
        for end in _ends:
            os.close(end)
        _ends.clear()
        _ends.add(write)
        if leads_group:
            os.setpgid(0, 0)
        try:
            answer = pickle.dumps((True, run()))
        except Exception:  # noqa: BLE001 - it is told to the parent
            answer = pickle.dumps((False, traceback.format_exc()))
        connection._close_all()
        while answer:
            answer = answer[os.write(write, answer) :]
        code = 0
    finally:
        os._exit(code)
