"""Azurite that is killed and started again, while a batch goes on with it: the batch ends as it should.

Azurite keeps what it has acknowledged in memory, and writes it to its file some seconds later. A store that a batch may
rely on does not forget: so all others are stopped, until the file has what was acknowledged, before Azurite is killed.
Requests that are under way then get no answer, or their answer is lost.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

from tests.faults.children import Child, ChildFailedError
from tests.faults.marks import AtCalls
from tests.faults.trial import Bench, Disturbed, Trial
from tests.faults.world import Shape
from tests.plugins.azurite import answers, free_port, needed_azurite

STORE = "Azurite itself"
_TURNS = 3
_SAVE_SECONDS = 6.0
"""A little more than the interval at which Azurite writes its file, if anything has changed."""
_QUIET_SECONDS = 0.3


class DurableAzurite:
    """An Azurite that keeps its tables in a file."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = free_port()
        self._file = folder / "__azurite_db_table__.json"
        self._process = self._started()

    @property
    def url(self) -> str:
        return f"azurite://127.0.0.1:{self._port}"

    def wait_until_saved(self) -> None:
        """Wait until its file has all that was acknowledged, when nobody writes meanwhile."""
        begun, before = time.monotonic(), self._written()
        while time.monotonic() - begun < _SAVE_SECONDS:
            time.sleep(_QUIET_SECONDS)
            if (now := self._written()) != before:
                time.sleep(_QUIET_SECONDS)
                if self._written() == now:
                    return

    def kill(self) -> None:
        """Send it SIGKILL."""
        self._process.kill()
        self._process.wait()

    def start(self) -> None:
        """Start it again, with what is in its file."""
        self._process = self._started()

    def _written(self) -> int:
        return self._file.stat().st_mtime_ns if self._file.exists() else 0

    def _started(self) -> subprocess.Popen[bytes]:
        command = [needed_azurite("table"), "--tableHost", "127.0.0.1", "--tablePort", str(self._port)]
        command += ["--silent", "--skipApiVersionCheck", "--disableTelemetry", "--location", "."]
        with (self._folder / "log").open("ab") as log:
            process = subprocess.Popen(
                command, cwd=self._folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        if not answers(process, self._port):
            process.kill()
            raise RuntimeError((self._folder / "log").read_text(errors="replace")[-1000:])
        return process


@contextmanager
def durable_azurite() -> Iterator[DurableAzurite]:
    """Run one, in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="azurite-") as folder:
        azurite = DurableAzurite(Path(folder))
        try:
            yield azurite
        finally:
            azurite.kill()


def kill_azurite(bench: Bench, shape: Shape, name: str, chance: Random) -> Trial:
    """Kill Azurite in the middle of a batch, some times; then run the batch to its end, and compare."""
    azurite = bench.azurite
    assert azurite is not None
    expected = bench.undisturbed(shape)
    with bench.world(shape, name) as world:
        disturbed = Disturbed(world, expected, chance)
        for _ in range(_TURNS):
            driver = Child(world.driver(AtCalls(world.marks)), leads_group=True)
            disturbed.drivers.append(driver)
            if not driver.is_done(chance.uniform(0, 0.8 * expected.seconds)):
                phase = world.marks.phase
                _kill_once(azurite, driver, is_missed=chance.random() < 0.5)
                disturbed.trial.kills += Counter({f"{STORE}, {phase.words}": 1})
            try:
                driver.end()
            except ChildFailedError as error:
                disturbed.trial.note(error)
        return disturbed.compare()


def _kill_once(azurite: DurableAzurite, driver: Child, *, is_missed: bool) -> None:
    """Kill Azurite and start it again; when it `is_missed`, driver and workers go on before it is there."""
    os.killpg(driver.pid, signal.SIGSTOP)
    azurite.wait_until_saved()
    azurite.kill()
    if is_missed:
        os.killpg(driver.pid, signal.SIGCONT)
    azurite.start()
    os.killpg(driver.pid, signal.SIGCONT)
