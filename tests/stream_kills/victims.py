"""The processes of a driver: itself, Spark's Java, and the Python workers, of which the first one forks the others."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import NamedTuple

from tests.stream_kills.world import World

ROOT = Path(__file__).parents[2]


class Victim(NamedTuple):
    """What is killed, and whether the stream must be started again then."""

    name: str
    ends_the_driver: bool


EVERYTHING = Victim("driver, Java and workers at once", ends_the_driver=True)
DRIVER = Victim("driver alone", ends_the_driver=True)
JAVA = Victim("Java", ends_the_driver=True)
WORKER = Victim("Python worker", ends_the_driver=False)


class Driver:
    """A process that runs a stream, in a group of its own."""

    def __init__(self, world: World, *, cores: int, partitions: int) -> None:
        arguments = map(str, (world.folder, *world.shape, cores, partitions))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.stream_kills.driver", *arguments],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def wait_until_ready(self) -> None:
        """Wait until Spark has started, or the driver ended."""
        assert self._process.stdout is not None
        self._process.stdout.readline()

    def has_ended(self, seconds: float) -> bool:
        """Wait so long at most; say whether it has ended."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        return self._process.poll() is not None

    def kill(self, victim: Victim, chance: Random) -> bool:
        """Send SIGKILL; say whether there was something to be killed."""
        java = _children(self._process.pid)
        pids = {
            EVERYTHING: [*self._workers(), *java, self._process.pid],
            DRIVER: [self._process.pid],
            JAVA: java,
            WORKER: [chance.choice(self._workers() or [0])],
        }[victim]
        killed = False
        for pid in filter(None, pids):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                killed = True
        return killed

    def end(self) -> str:
        """Wait for the end, and return what it had to complain about; empty when it did all that it should."""
        complaints = self._process.communicate()[1]
        return complaints if self._process.returncode else ""

    def _workers(self) -> list[int]:
        """Return Python's processes below Java that have none below them: the workers, or their parent alone."""
        below = [pid for java in _children(self._process.pid) for pid in _children(java)]
        return [worker for parent in below for worker in _children(parent) or [parent]]


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (task / "children").read_text().split())
    return found
