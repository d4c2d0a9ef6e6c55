"""Drivers that put a round in place, without Spark and without handlers; and what happens at their steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any, cast

import pyarrow as pa
import pytest
from pyarrow import parquet
from pyspark.sql import SparkSession

from eventstore import drive
from runtime.batches.ledger import Ledger
from runtime.batches.record import BatchRecord
from runtime.file_systems import Folder, open_folder
from runtime.spark.folders import BatchFolders
from runtime.spark.placing import RoundPlacing
from runtime.spark.workers.parts import Part, PartJob
from runtime.urls import within
from tests.support.outcome_rows import batch, outcome
from tests.unit.runtime.tables import memory_table
from tests.unit.runtime.worker import ToldClock

TYPES = ("Heard",)
ROWS = 7
"""The outcomes of a round, in the two files of a driver."""
STEPS = ("copy_file", "create", "delete", "delete_file", "flush", "move_file", "move_to", "put", "touch")
NO_SPARK = cast("SparkSession", None)
_ledgers: dict[str, Ledger] = {}


def new_ledger() -> Ledger:
    return Ledger(memory_table(), ToldClock())


class KilledError(BaseException):
    """Stands for the end of the driver."""


class Driver:
    """A driver of the batch `night`, whose workers have written two files.

    All drivers that write to a folder share a ledger, unless one is given.
    """

    def __init__(self, out: Path | str, ledger: Ledger | None = None) -> None:
        self.ledger = ledger or _ledgers.setdefault(str(out), new_ledger())
        self.folders = BatchFolders(NO_SPARK, drive(self.ledger.begin("night", "a log", str(out))))
        self.attempt = self.folders.stage(0)
        self.staged = self.folders.staged(self.attempt)
        self.parts = [self.write(count) for count in (3, 4)]

    def write(self, count: int) -> Part:
        (part,) = run(PartJob(iter, self.staged, TYPES), [batch([outcome()] * count)])
        return part

    def commit(self) -> Sequence[Part]:
        """Put the round in place, or what another driver has decided on."""
        placing = RoundPlacing(self.folders, TYPES, self.decide, run)
        _, parts = placing.put_in_place(self.attempt, self.parts)
        return parts

    def decide(self, record: BatchRecord, attempt: str) -> BatchRecord:
        return drive(self.ledger.decide(record, attempt))


def run(job: PartJob, rows: Sequence[pa.RecordBatch] = ()) -> Sequence[Part]:
    """Run a task that writes a file."""
    found = [row for rows in job.run(rows) for row in rows.to_pylist()]
    return [Part(**{**row, "statuses": dict(row["statuses"])}) for row in found]


class Steps:
    """Counts what is done to folders, and does something else before one of these steps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self._at = -1
        self._instead: Callable[[], None] = lambda: None
        for name in STEPS:
            monkeypatch.setattr(Folder, name, self._counted(getattr(Folder, name)))
        monkeypatch.setattr(Ledger, "decide", self._counted(Ledger.decide))

    def before(self, number: int, do: Callable[[], None]) -> None:
        self.count, self._at, self._instead = 0, number, do

    def _counted(self, step: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any) -> Any:
            self.count += 1
            if self.count - 1 == self._at:
                self._at = -1
                self._instead()
            return step(*arguments)

        return counted


def die() -> None:
    raise KilledError


def visible(out: Path | str) -> set[str]:
    """Return the files that a plain reader of the folder sees."""
    folder = open_folder(str(out))
    if not folder.exists():
        return set()
    dataset = parquet.ParquetDataset(folder.path, filesystem=folder.files)
    return {PurePosixPath(file).name for file in dataset.files}


def rows_of(out: Path | str) -> int:
    """Return how many outcomes a plain reader of the folder sees."""
    folder = open_folder(str(out))
    return parquet.read_table(folder.path, filesystem=folder.files).num_rows if visible(out) else 0


def names(parts: Sequence[Part]) -> set[str]:
    return {part.name for part in parts}


def all_steps(where: Path | str, steps: Steps) -> Iterator[tuple[int, str]]:
    """Give the number of each step of a commit, and a folder of its own to try something there."""
    driver = Driver(within(str(where), "counted"))
    steps.before(-1, die)
    driver.commit()
    for number in range(steps.count):
        yield number, within(str(where), f"step-{number}")


def survive_the_driver(number: int, out: str, steps: Steps) -> bool:
    """Let a driver die at a step and another one go on; say whether a plain reader saw a part of a round meanwhile."""
    dead = Driver(out)
    steps.before(number, die)
    with suppress(KilledError):
        dead.commit()
    return follow(Driver, out)


def follow(driver: Callable[[str], Driver], out: str) -> bool:
    """Go on after a driver that died; say whether a plain reader has seen a part of a round before."""
    seen = rows_of(out)

    # When another goes on: it takes over what is whole or decided, and writes anew what is not
    after = driver(out)
    done = after.folders.take_over(0, TYPES)
    assert done is not None or not seen
    done = after.commit() if done is None else done

    # Then one of them has all in place, and nothing else
    assert visible(out) == names(done)
    assert rows_of(out) == ROWS
    after.folders.remove_staging()
    assert not open_folder(within(out, "_staging")).names()
    return 0 < seen < ROWS


def overtake(number: int, out: str, steps: Steps) -> None:
    """Let a driver put all in place and sweep up in the middle of another one, which then goes on."""
    slow, fast = Driver(out), Driver(out)
    committed: list[Part] = []

    def end() -> None:
        committed.extend(fast.commit())
        fast.folders.remove_staging()

    steps.before(number, end)

    done = slow.commit()

    # The slow one has the files that are in place, whosever they are, and what the fast one has committed stays
    assert visible(out) == names(done) == names(committed)
    assert rows_of(out) == ROWS
