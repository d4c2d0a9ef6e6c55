"""The files of a round become visible as a whole or are replaced, whoever dies when, and whoever else is at work."""

import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyarrow import parquet

from runtime import file_systems
from runtime.errors import BatchFailedError, BatchRefusedError, UsageError
from runtime.file_systems import Folder, open_folder
from runtime.ledger.ledger import Ledger
from runtime.spark import batch as rounds
from runtime.spark.commit import absolute_folder
from runtime.spark.worker.outcomes import PartJob, totals
from tests.support.outcome_rows import batch, outcome
from tests.support.rounds import (
    COUNTS,
    ROWS,
    TYPES,
    Driver,
    Steps,
    all_steps,
    begin_again_beside,
    new_ledger,
    overtake,
    rows_of,
    survive_the_driver,
    visible,
)


@pytest.fixture(params=["moved", "merged", "one by one"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param != "moved":
        monkeypatch.setattr(file_systems, "_MOVE_FOLDERS", ())
    if request.param == "one by one":
        monkeypatch.setattr(rounds, "MERGED_UP_TO", 0)
    found: str = request.param
    return found


@pytest.fixture
def steps(way: str, monkeypatch: pytest.MonkeyPatch) -> Steps:
    return Steps(monkeypatch)


def test_what_is_in_place_is_what_was_told_of_and_nothing_else(tmp_path, steps):
    # Given files of attempts that nobody was told of, one of which is not even whole
    driver = Driver(tmp_path / "out")
    driver.write(5)
    Path(driver.staged, "part-torn.parquet").write_bytes(b"PAR1")

    assert driver.commit().counts == totals(driver.parts)[0] == COUNTS
    assert rows_of(tmp_path / "out") == driver.folders.rows(0) == ROWS
    assert not Path(driver.staged).exists()


def test_a_driver_that_dies_at_any_step_is_followed_by_one_that_ends_the_work(tmp_path, way, steps):
    seen_in_part = [survive_the_driver(number, out, steps) for number, out in all_steps(tmp_path, steps)]

    # A plain reader sees a part meanwhile only where several files are copied
    assert len(seen_in_part) > 5
    assert any(seen_in_part) == (way == "one by one")


@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.thorough)])
def test_of_two_drivers_one_has_all_in_place_and_what_it_committed_stays(tmp_path, steps, every):
    for number, out in itertools.islice(all_steps(tmp_path, steps), None, None, every):
        overtake(number, out, steps)


@pytest.mark.parametrize("every", [7, pytest.param(2, marks=pytest.mark.thorough)])
def test_a_driver_changes_nothing_that_another_one_commits_after_it_has_begun_the_batch_again(
    tmp_path, steps, every
):
    cases = list(itertools.product(all_steps(tmp_path, steps), range(9)))
    for (number, out), later in cases[::every]:
        begin_again_beside(number, later, f"{out}-{later}", steps)


def test_an_attempt_that_comes_late_changes_nothing(tmp_path, steps):
    # Given an attempt that has written something when another attempt at its task has ended
    driver = Driver(tmp_path / "out")

    def commit_meanwhile(_: object):
        yield batch([outcome()])
        driver.commit()
        yield batch([outcome()])

    # When the round is put in place meanwhile, then the attempt fails
    with pytest.raises(BatchFailedError, match="does not see the folder"):
        list(PartJob(commit_meanwhile, driver.staged, TYPES).run([]))

    # ... as does one that begins only then, and nobody sees either
    with pytest.raises(BatchFailedError, match="does not see the folder"):
        driver.write(1)
    assert rows_of(tmp_path / "out") == ROWS
    assert not Path(driver.staged).exists()


def test_a_round_without_outcomes_has_a_file_without_rows(tmp_path, steps):
    driver = Driver(tmp_path / "out")
    driver.parts = []

    assert driver.commit().counts == {"outputs": 0}

    assert len(visible(tmp_path / "out")) == 1
    assert parquet.read_table(tmp_path / "out").num_rows == 0


def test_a_file_that_is_not_as_it_was_written_is_not_put_in_place(tmp_path, steps):
    driver = Driver(tmp_path / "out")
    with Path(driver.staged, driver.parts[0].name).open("ab") as file:
        file.write(b"more")

    with pytest.raises(BatchFailedError, match="changed after they were written"):
        driver.commit()
    assert visible(tmp_path / "out") == set()


def test_outcomes_of_another_store_are_left_alone(tmp_path, steps):
    stranger, driver = Driver(tmp_path / "out", new_ledger()), Driver(tmp_path / "out")
    stranger.commit()
    theirs = visible(tmp_path / "out")

    with pytest.raises(BatchRefusedError, match="in another store"):
        driver.commit()
    assert visible(tmp_path / "out") == theirs


def test_all_that_a_round_needs_is_on_disk_before_it_is_committed(tmp_path, monkeypatch):
    # Given a disk that says what it was asked to keep, each as it is named in the end
    done: list[str] = []
    kept = Folder.flush

    def flush(folder: Folder, name: str | None = None) -> None:
        kept(folder, name)
        done.append(Path(folder.path, name or "").name)

    monkeypatch.setattr(Folder, "flush", flush)
    monkeypatch.setattr(Folder, "move_to", noted(done, "moved", Folder.move_to))
    monkeypatch.setattr(Ledger, "commit_round", noted(done, "committed", Ledger.commit_round))

    # When a round is written, put in place and made durable
    driver = Driver(tmp_path / "out")
    driver.commit()

    # Then files and their names are kept before they can be seen, and after that the names of their folders
    (mark,) = (tmp_path / "out").glob("*/*/_batch-*")
    files = [part.name for part in driver.parts]
    manifest = ["_files", Path(driver.staged).name]
    in_place = [mark.name, "_gathered", "moved", "round=0", "batch_id=night", "out"]
    assert done == [*files, *manifest, *in_place, "committed"]


def noted(done: list[str], name: str, call: Callable[..., Any]) -> Callable[..., Any]:
    def call_and_note(*arguments: object) -> Any:
        done.append(name)
        return call(*arguments)

    return call_and_note


@pytest.mark.parametrize("name", ["out", "with space", "100%25", "a:b", "änd"])
def test_a_path_is_taken_as_it_stands_and_begins_in_the_working_directory(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    for path in (name, f"{tmp_path}/{name}", f"file:{tmp_path}/{name}", f"file://{tmp_path}/{name}"):
        if path != "a:b":  # which would be a scheme
            folder = open_folder(absolute_folder(path))
            folder.create()
            assert (folder.path, folder.is_local, folder.moves_whole) == (str(tmp_path / name), True, True)


@pytest.mark.parametrize("sign", [*"*?[]{}\\"])
def test_a_folder_that_spark_takes_for_a_pattern_is_refused(sign):
    with pytest.raises(UsageError, match="in its name are a pattern"):
        absolute_folder(f"out{sign}x")


@pytest.mark.parametrize(
    ("url", "asked"),
    [
        ("s3a://bucket/out", "s3://bucket/out"),
        ("abfss://box@account.dfs.core.windows.net/my out", "abfss://box@account.dfs.core.windows.net/my%20out"),
    ],
)  # fmt: skip
def test_a_url_is_opened_by_pyarrow(monkeypatch, url, asked):
    known = {asked: (SimpleNamespace(type_name="s3"), "box/out")}
    monkeypatch.setattr("pyarrow.fs.FileSystem", SimpleNamespace(from_uri=known.get))

    folder = open_folder(url)

    assert folder.path == "box/out"
    assert not folder.is_local
    assert not folder.moves_whole


def test_what_pyarrow_does_not_know_is_asked_of_fsspec_and_refused_where_that_is_missing(monkeypatch):
    def url_to_fs(url: str):
        return SimpleNamespace(protocol="box"), url.removeprefix("box://")

    monkeypatch.setitem(sys.modules, "fsspec", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "fsspec.core", SimpleNamespace(url_to_fs=url_to_fs))

    folder = open_folder("box://shelf/out")

    assert (folder.path, folder.files.type_name) == ("shelf/out", "py::fsspec+box")
    assert not folder.moves_whole

    for module in ("fsspec", "fsspec.core"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UsageError, match=r"box://shelf/out cannot be opened: .* or install fsspec"):
        absolute_folder("box://shelf/out")


def test_a_folder_that_is_not_there_is_empty_and_only_an_empty_one_is_deleted_as_one(tmp_path):
    folder = open_folder(str(tmp_path / "out"))
    assert (folder.names(), folder.sizes(), folder.exists()) == ([], {}, False)
    folder.delete()
    folder.delete_file("file")

    folder.create()
    folder.touch("file")
    folder.delete_if_empty()
    assert folder.names() == ["file"]
    folder.delete_file("file")
    folder.delete_if_empty()
    assert not folder.exists()
