"""Drivers that put a round in place, without Spark and without handlers; and what happens at their steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any, cast

import pytest
from pyarrow import parquet
from pyspark.sql import SparkSession

from runtime.file_systems import Folder, open_folder
from runtime.spark.folders import BatchFolders
from runtime.spark.workers.parts import Part, PartJob
from tests.support.batch_records import started
from tests.support.outcome_rows import batch, outcome

TYPES = ("Heard",)
STEPS = ("copy_file", "create", "delete", "delete_file", "flush", "move_file", "move_to", "touch")
NO_SPARK = cast("SparkSession", None)


class KilledError(BaseException):
    """Stands for the end of the driver."""


class Driver:
    """A driver of the batch `night`, whose workers have written two files."""

    def __init__(self, out: Path | str, token: str = "token") -> None:
        self.folders = BatchFolders(NO_SPARK, started(out, token))
        self.staged = self.folders.stage(0)
        self.parts = [self.write(count) for count in (3, 4)]

    def write(self, count: int) -> Part:
        (row,) = PartJob(iter, self.staged, TYPES).run([batch([outcome()] * count)])
        return Part(**{**row.to_pylist()[0], "statuses": {"processed": count}})

    def commit(self) -> Sequence[Part]:
        return self.folders.put_in_place(self.staged, 0, self.parts, TYPES)


class Steps:
    """Counts what is done to folders, and does something else before one of these steps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self._at = -1
        self._instead: Callable[[], None] = lambda: None
        for name in STEPS:
            monkeypatch.setattr(Folder, name, self._counted(getattr(Folder, name)))

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


def names(parts: Sequence[Part]) -> set[str]:
    return {part.name for part in parts}


def all_steps(where: Path | str, steps: Steps) -> Iterator[tuple[int, str]]:
    """Give the number of each step of a commit, and a folder of its own to try something there."""
    driver = Driver(f"{where}/counted")
    steps.before(-1, die)
    driver.commit()
    for number in range(steps.count):
        yield number, f"{where}/step-{number}"


def survive_the_driver(number: int, out: str, steps: Steps) -> bool:
    """Let a driver die at a step and another one go on; say whether a plain reader saw a part of a round meanwhile."""
    # Given a driver that died
    dead = Driver(out)
    steps.before(number, die)
    with suppress(KilledError):
        dead.commit()
    seen_in_part = visible(out) not in (set(), names(dead.parts))

    # When another goes on: it takes over what is whole, and replaces what is not
    was_whole = dead.folders.is_in_place(0)
    assert was_whole == (visible(out) == names(dead.parts))
    after = Driver(out)
    done = dead.parts if was_whole else after.commit()

    # Then one of them has all in place, and nothing else
    assert visible(out) == names(done)
    after.folders.remove_staging()
    assert not open_folder(f"{out}/_staging").names()
    return seen_in_part


def overtake(number: int, out: str, steps: Steps) -> None:
    """Let a driver commit in the middle of another one, which then goes on."""
    slow, fast = Driver(out), Driver(out)
    committed: list[Part] = []
    steps.before(number, lambda: committed.extend(fast.commit()))

    done = slow.commit()

    # The slow one has the files that are in place, whosever they are, and what the fast one has committed stays
    assert visible(out) == names(done) == names(committed)
    assert names(done) in (names(slow.parts), names(fast.parts))
