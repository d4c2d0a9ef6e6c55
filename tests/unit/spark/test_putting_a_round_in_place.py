"""The files of a round become visible as a whole or are replaced, whoever dies when, and whoever else is at work.

Both ways are tried on a disk: folders moved as a whole, and files copied one by one as to an object store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest
from pyarrow import parquet
from pyspark.sql import SparkSession

from runtime.errors import BatchFailedError, BatchRefusedError
from runtime.spark import file_systems
from runtime.spark.file_systems import Folder
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

    def __init__(self, out: Path, token: str = "token") -> None:
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


@pytest.fixture(params=["whole", "one by one"])
def steps(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Steps:
    if request.param == "one by one":
        monkeypatch.setattr(file_systems, "_MOVE_FOLDERS", ())
    return Steps(monkeypatch)


def die() -> None:
    raise KilledError


def visible(out: Path) -> set[str]:
    """Return the files that a plain reader of the folder sees."""
    dataset = parquet.ParquetDataset(out) if out.exists() else None
    return {Path(file).name for file in dataset.files} if dataset else set()


def names(parts: Sequence[Part]) -> set[str]:
    return {part.name for part in parts}


def all_steps(tmp_path: Path, steps: Steps) -> Iterator[tuple[int, Path]]:
    """Give the number of each step of a commit, and a folder of its own to try something there."""
    driver = Driver(tmp_path / "counted")
    steps.before(-1, die)
    driver.commit()
    for number in range(steps.count):
        yield number, tmp_path / f"step-{number}"


def test_what_is_in_place_is_what_was_told_of_and_nothing_else(tmp_path, steps):
    # Given files of attempts that nobody was told of, one of which is not even whole
    driver = Driver(tmp_path / "out")
    driver.write(5)
    Path(driver.staged, "part-torn.parquet").write_bytes(b"PAR1")

    assert driver.commit() == driver.parts

    assert visible(tmp_path / "out") == names(driver.parts)
    assert driver.folders.parts(0, TYPES) == sorted(driver.parts)
    assert not Path(driver.staged).exists()


def test_a_driver_that_dies_at_any_step_is_followed_by_one_that_ends_the_work(tmp_path, steps):
    seen_in_part = 0
    for number, out in all_steps(tmp_path, steps):
        # Given a driver that died
        dead = Driver(out)
        steps.before(number, die)
        with suppress(KilledError):
            dead.commit()
        in_part = visible(out) not in (set(), names(dead.parts))
        seen_in_part += in_part

        # When another goes on: it takes over what is whole, and replaces what is not
        was_whole = dead.folders.is_in_place(0)
        assert was_whole == (visible(out) == names(dead.parts))
        after = Driver(out)
        done = dead.parts if was_whole else after.commit()

        # Then one of them has all in place, and nothing else
        assert visible(out) == names(done)
        after.folders.remove_staging()
        assert not (out / "_staging").exists()

    # ... and meanwhile a plain reader sees a part of it only where files are copied one by one
    assert (seen_in_part == 0) == bool(file_systems._MOVE_FOLDERS)


def test_of_two_drivers_one_has_all_in_place_and_what_it_committed_stays(tmp_path, steps):
    for number, out in all_steps(tmp_path, steps):
        # Given a driver that another one overtakes
        slow, fast = Driver(out), Driver(out)
        committed: list[Part] = []
        steps.before(number, lambda fast=fast, committed=committed: committed.extend(fast.commit()))

        # When it goes on, then it has the files in place, whosever they are
        done = slow.commit()

        assert visible(out) == names(done) == names(committed)
        assert names(done) in (names(slow.parts), names(fast.parts))


def test_an_attempt_that_comes_late_changes_nothing(tmp_path, steps):
    # Given an attempt that has written something when another attempt at its task has ended
    driver = Driver(tmp_path / "out")

    def commit_meanwhile(_: object):
        yield batch([outcome()])
        driver.commit()
        yield batch([outcome()])

    # When the round is put in place meanwhile, then the attempt fails
    with pytest.raises(FileNotFoundError):
        list(PartJob(commit_meanwhile, driver.staged, TYPES).run([]))

    # ... as does one that begins only then, and nobody sees either
    with pytest.raises(BatchFailedError, match="does not see the folder"):
        driver.write(1)
    assert visible(tmp_path / "out") == names(driver.parts)
    assert not Path(driver.staged).exists()


def test_a_round_without_outcomes_has_a_file_without_rows(tmp_path, steps):
    driver = Driver(tmp_path / "out")
    driver.parts = []

    (part,) = driver.commit()

    assert (part.statuses, part.outputs, part.routable) == ({}, 0, 0)
    assert visible(tmp_path / "out") == {part.name}
    assert parquet.read_table(tmp_path / "out").num_rows == 0
    assert driver.folders.parts(0, TYPES) == [part]


def test_a_file_that_is_not_as_it_was_written_is_not_put_in_place(tmp_path, steps):
    driver = Driver(tmp_path / "out")
    with Path(driver.staged, driver.parts[0].name).open("ab") as file:
        file.write(b"more")

    with pytest.raises(BatchFailedError, match="not as they were written"):
        driver.commit()
    assert visible(tmp_path / "out") == set()


def test_outcomes_of_another_store_are_left_alone(tmp_path, steps):
    stranger, driver = Driver(tmp_path / "out", "another token"), Driver(tmp_path / "out")
    stranger.commit()

    with pytest.raises(BatchRefusedError, match="from another store"):
        driver.commit()
    assert visible(tmp_path / "out") == names(stranger.parts)
