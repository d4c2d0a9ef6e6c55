"""The memory of Spark's Python workers, read from outside: from /proc, while they work.

The workers are forked by a daemon, which Spark's JVM starts; the JVM is a child of the process that asks.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

_DAEMON = b"pyspark.daemon"
_PROC = Path("/proc")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_KIB = 1024


@dataclass(frozen=True, slots=True)
class Sample:
    """What the workers took at a moment, by process. `done` is how far the batch was.

    `resident` counts pages that are shared with other processes in full, `proportional` by their share of it; it is
    missing where it may not be read.
    """

    seconds: float
    done: int
    resident: Mapping[int, int]
    proportional: Mapping[int, int]

    @property
    def largest(self) -> int:
        """The resident bytes of the largest worker."""
        return max(self.resident.values(), default=0)


class Sampler:
    """Takes samples in a thread of its own, and a last one when it is stopped."""

    def __init__(self, done: Callable[[], int], every: float = 0.2) -> None:
        self.samples: list[Sample] = []
        self._began = time.monotonic()
        self._done = done
        self._every = every
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="memory", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._take()

    def _run(self) -> None:
        while not self._ended.wait(self._every):
            self._take()

    def _take(self) -> None:
        done = self._done()
        workers = list(python_workers(os.getpid()))
        resident = {pid: found for pid in workers if (found := _resident(pid)) is not None}
        proportional = {pid: found for pid in workers if (found := _proportional(pid)) is not None}
        self.samples.append(Sample(time.monotonic() - self._began, done, resident, proportional))


def python_workers(root: int) -> Iterator[int]:
    """Give the Python workers among the descendants of a process."""
    children: dict[int, list[int]] = {}
    for pid, parent in _parents():
        children.setdefault(parent, []).append(pid)
    waiting = [root]
    while waiting:
        parent = waiting.pop()
        found = children.get(parent, [])
        waiting += found
        if _is_daemon(parent):
            yield from (pid for pid in found if _is_daemon(pid))


def _parents() -> Iterator[tuple[int, int]]:
    for entry in os.scandir(_PROC):
        if entry.name.isdecimal() and (stat := _read(int(entry.name), "stat")) is not None:
            # The name of the program, in brackets, may hold anything.
            yield int(entry.name), int(stat.rpartition(b")")[2].split()[1])


def _is_daemon(pid: int) -> bool:
    return _DAEMON in (_read(pid, "cmdline") or b"")


def _resident(pid: int) -> int | None:
    statm = _read(pid, "statm")
    return int(statm.split()[1]) * _PAGE if statm else None


def _proportional(pid: int) -> int | None:
    for line in (_read(pid, "smaps_rollup") or b"").splitlines():
        name, _, value = line.partition(b":")
        if name == b"Pss":
            return int(value.split()[0]) * _KIB
    return None


def _read(pid: int, name: str) -> bytes | None:
    try:
        return (_PROC / str(pid) / name).read_bytes()
    except OSError:  # it has ended, or belongs to somebody else
        return None
