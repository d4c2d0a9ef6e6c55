"""A process of its own for each contender, so that none has the memory, threads or warm code of another."""

from __future__ import annotations

import os
import shutil
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.catalogue import Entry
from benchmarks.contender import (
    Contender,
    ContenderFailedError,
    DisagreementError,
    Measurement,
    Setting,
    check,
)
from benchmarks.logs import Log
from benchmarks.processes import own_process

_living: dict[str, Contender] = {}
"""The contender that lives in this process."""


@dataclass(frozen=True, slots=True)
class Started:
    """What is known of a contender once it has started."""

    seconds: float
    durability: str


class Host:
    """Starts a contender in a process of its own, and has it work on logs."""

    def __init__(self, entry: Entry, setting: Setting) -> None:
        self._entry = entry
        self._setting = setting
        self._turns = 0
        setting.folder.mkdir(parents=True)
        self._process = own_process(_print_to, setting.folder / "printed.log")

    def start(self) -> Started:
        """Start the contender."""
        return self._process.submit(_start, self._entry, self._setting).result()

    def measure(self, log: Log) -> Measurement:
        """Have the contender work on a log from its beginning, and check the states that it ends in."""
        self._turns += 1
        folder = self._setting.folder / f"turn-{self._turns}"
        return self._process.submit(_measure, self._entry.name, log, folder).result()

    def close(self) -> None:
        """End the contender and its process."""
        try:
            self._process.submit(_close).result()
        finally:
            self._process.shutdown()


def _print_to(file: Path) -> None:
    """Send what this process and those that it starts print to a file."""
    with file.open("ab") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)


@contextmanager
def _errors_that_travel(name: str) -> Iterator[None]:
    try:
        yield
    except DisagreementError:
        raise
    except Exception:  # noqa: BLE001 - another package's
        message = f"{name} failed:\n{traceback.format_exc()}"
        raise ContenderFailedError(message) from None


def _start(entry: Entry, setting: Setting) -> Started:
    began = time.perf_counter()
    with _errors_that_travel(entry.name):
        contender = entry.load()(setting)
        contender.start()
    _living["contender"] = contender
    return Started(time.perf_counter() - began, contender.durability)


def _measure(name: str, log: Log, folder: Path) -> Measurement:
    contender = _living["contender"]
    folder.mkdir(parents=True)
    with _errors_that_travel(name):
        contender.prepare(log, folder)
        try:
            began = time.perf_counter()
            contender.work()
            seconds = time.perf_counter() - began
            check(contender.states(), log.expected(), name)
            return Measurement(seconds, log.deliveries, dict(contender.facts()))
        finally:
            contender.finish()
            shutil.rmtree(folder, ignore_errors=True)


def _close() -> None:
    contender = _living.pop("contender", None)
    if contender is not None:
        contender.close()
