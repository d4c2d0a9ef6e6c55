"""Drivers that put a round in place, without Spark and without handlers; and what happens at their steps.

`python -m tests.support.rounds OUT FOLDER` runs drivers that end themselves by SIGKILL, each at another step. Driver N
writes to OUT/step-N, and has its ledger in FOLDER/N.db. The number of steps is printed.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import pyarrow as pa
import pytest
from pyarrow import parquet
from pyspark.sql import Row, SparkSession

from eventstore import Table, connect, drive
from handlers import App
from runtime.batch_options import BatchOptions, TablePlace
from runtime.errors import BatchFailedError
from runtime.file_systems import Folder, open_folder, within
from runtime.ledger.ledger import BatchRecord, Ledger
from runtime.spark.batch import Rounds
from runtime.spark.commit import BatchFolders
from runtime.spark.worker.connection import Connection
from runtime.spark.worker.outcomes import OutcomeFile, PartJob
from tests.support.outcome_rows import batch, outcome
from tests.unit.runtime.tables import memory_table
from tests.unit.runtime.worker import ToldClock

TYPES = ("Heard",)
ROWS = 7
"""The outcomes of a round, in the two files of a driver."""
STEPS = (
    "copy_file",
    "create",
    "delete",
    "delete_file",
    "flush",
    "move_file",
    "move_to",
    "put",
    "sizes",
    "touch",
)
COUNTS = {"processed": ROWS, "outputs": 0}
NO_SPARK = cast("SparkSession", SimpleNamespace(range=lambda *_: _Here()))
"""Its tasks run here."""
APP = cast("App", SimpleNamespace(message_types=TYPES))
PLACE = TablePlace("memory:", "games")
T = TypeVar("T")
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
        self.rounds = Rounds(
            NO_SPARK, APP, PLACE, str(out), BatchOptions(), cast("Connection", _Connection(self.ledger))
        )
        self.record = drive(self.ledger.begin("night", "a log", str(out)))
        self.folders = BatchFolders(NO_SPARK, self.record)
        self.attempt = self.folders.stage()
        self.staged = self.folders.staged(self.attempt)
        self.parts = [self.write(count) for count in (3, 4)]

    def write(self, count: int) -> OutcomeFile:
        (part,) = run(PartJob(iter, self.staged, TYPES), [batch([outcome()] * count)])
        return part

    def commit(self) -> BatchRecord:
        """Commit the round, with what this driver has written or what another one has decided on."""
        record = self.rounds._decide(self.record, self.attempt, self.parts)
        return self.rounds._commit(record) if record.rounds == self.record.rounds else record

    def resume(self) -> BatchRecord:
        """Commit the round as a driver does that goes on with the batch."""
        if self.record.rounds:
            return self.record
        return self.rounds._commit(self.record) if self.folders.is_decided() else self.commit()


@dataclass(frozen=True)
class _Connection:
    the_ledger: Ledger

    @property
    def table(self) -> Table:
        return self.the_ledger._table

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return drive(work)


@dataclass(frozen=True)
class _Here:
    fold: Any = None

    def mapInArrow(self, fold: Any, _: object) -> _Here:  # noqa: N802 - Spark's name
        return _Here(fold)

    def collect(self) -> Sequence[Row]:
        return [Row(**row) for rows in self.fold([]) for row in _with_dicts(rows)]


def run(job: PartJob, rows: Sequence[pa.RecordBatch] = ()) -> Sequence[OutcomeFile]:
    return [OutcomeFile(**row) for rows in job.run(rows) for row in _with_dicts(rows)]


def _with_dicts(rows: pa.RecordBatch) -> list[dict[str, Any]]:
    return [{**row, "statuses": dict(row["statuses"])} for row in rows.to_pylist()]


class Steps:
    """Counts what is done to folders, and does something else before one of these steps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self._at = -1
        self._instead: Callable[[], None] = lambda: None
        for name in STEPS:
            monkeypatch.setattr(Folder, name, self._counted(getattr(Folder, name)))
        monkeypatch.setattr(Ledger, "choose_attempt", self._counted(Ledger.choose_attempt))

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
    folder = open_folder(str(out))
    if not folder.exists():
        return set()
    dataset = parquet.ParquetDataset(folder.path, filesystem=folder.files)
    return {PurePosixPath(file).name for file in dataset.files}


def rows_of(out: Path | str) -> int:
    folder = open_folder(str(out))
    return parquet.read_table(folder.path, filesystem=folder.files).num_rows if visible(out) else 0


def names(parts: Sequence[OutcomeFile]) -> set[str]:
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

    # When another goes on: it takes over what is decided, and writes anew what is not
    after = driver(out)
    assert not seen or after.record.rounds or after.folders.is_decided()
    assert after.resume().counts == COUNTS

    # Then all is in place once, and nothing else
    assert rows_of(out) == ROWS
    after.folders.remove_staging()
    assert not open_folder(within(out, "_staging")).names()
    return 0 < seen < ROWS


def overtake(number: int, out: str, steps: Steps) -> None:
    """Let a driver put all in place and sweep up in the middle of another one, which then goes on."""
    slow, fast = Driver(out), Driver(out)
    committed: list[set[str]] = []

    def end() -> None:
        fast.commit()
        fast.folders.remove_staging()
        committed.append(visible(out))

    steps.before(number, end)

    done = slow.commit()

    # The slow one has the batch as it is, whosever the files are, and what the fast one has committed stays
    assert done.counts == COUNTS
    assert committed == [visible(out)]
    assert rows_of(out) == ROWS


def begin_again_beside(number: int, later: int, out: str, steps: Steps) -> None:
    """Let a driver begin the batch again amid another one's second round, and sweep up `later` steps after."""
    Driver(out).commit()
    slow, fast = Driver(out), Driver(out)
    published: list[set[str]] = []

    def begin_again() -> None:
        next(Path(out).glob("batch_id=*/round=0/_batch-*")).unlink()
        fast.rounds._restart_if_damaged(drive(fast.ledger.get("night")))
        Driver(out).commit()
        Driver(out).commit()
        published.append(visible(out))
        steps.before(later, fast.folders.remove_staging)

    steps.before(number, begin_again)
    with suppress(BatchFailedError):
        slow.commit()

    # Then all that was committed since stays, and nothing is beside it
    record = drive(slow.ledger.get("night"))
    assert (record.rounds, BatchFolders(NO_SPARK, record).damaged()) == (2, None)
    assert published == [visible(out)]


def ledger_of(folder: Path, number: int) -> Ledger:
    store = connect(f"sqlite:///{folder}/{number}.db")
    return Ledger(drive(store.table("games")), ToldClock())


def main(out: str, folder: Path) -> None:
    steps = Steps(pytest.MonkeyPatch())
    for number in itertools.count():
        # Each in a process of its own: what speaks to an object store does not survive a fork.
        child = os.fork()
        if child == 0:
            driver = Driver(within(out, f"step-{number}"), ledger_of(folder, number))
            steps.before(number, lambda: os.kill(os.getpid(), signal.SIGKILL))
            driver.commit()
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            continue
        print(number)
        sys.exit(os.WEXITSTATUS(status))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
