"""Versions that truncation cuts are in files first, and come back from there as they were in the table."""

from collections.abc import Iterator
from functools import partial

import pytest

from eventstore import InterceptedTable, StoreUnavailableError, Table, drive
from runtime.algorithms.state_based.truncation import (
    TruncationChoices,
    take_old,
    truncate_stream,
)
from runtime.archives import versions as archive
from runtime.archives.versions import VersionPart, prepare_parts
from runtime.errors import ArchiveError, UsageError
from runtime.ledger.batch import BatchContext, OpenBatches
from runtime.versions import limits
from runtime.versions.run import Version
from tests.support.exported import exported
from tests.unit.runtime.accidents import At, CrashError, crash
from tests.unit.runtime.diary import DIARY, ponder, write
from tests.unit.runtime.patience import PATIENCE
from tests.unit.runtime.tables import copy_of, memory_table
from tests.unit.runtime.worker import DAY, NOW, ToldClock, Worker, stored

KEY = f"Diary-{DIARY}"
OLD = NOW - 10 * DAY
COUNT = 60
RULES = TruncationChoices(older_than=DAY, allow_undated=True, acknowledged_after=0).as_of(
    NOW, OpenBatches(next=2)
)


@pytest.fixture(scope="module")
def long_stream() -> Table:
    """Give a stream with runs and a tail, versions with and without headers, times and changes of the state."""
    table = memory_table()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "MAX_SEGMENT_BYTES", 300)
        patch.setattr(limits, "MAX_TAIL_BYTES", 3000)
        for number in range(COUNT):
            batch = BatchContext("night", number=1) if number % 3 else None
            worker = Worker(table, clock=ToldClock(OLD + number), batch=batch)
            headers = {"trace": f"t{number}"} if number % 2 else None
            at = None if number == 7 else OLD + number
            message = ponder if number % 5 == 0 else partial(write, f"line {number}")
            worker.process(message(f"m-{number}", enqueued_at=at, headers=headers))
    return table


@pytest.fixture
def table(long_stream: Table) -> Table:
    return copy_of(long_stream)


def export(table: Table, folder) -> int:
    """Write what is to be cut to a file, as a worker does, and return up to where."""
    with VersionPart(folder) as part:
        newest, _ = drive(take_old(table, KEY, RULES, PATIENCE, partial(part.add, "Diary", DIARY)))
        part.close()
    return newest


def cut(table: Table, up_to: int) -> None:
    drive(truncate_stream(table, KEY, RULES, PATIENCE, up_to=up_to))


def all_of(table: Table, folder) -> list[Version]:
    """Return the versions in files and those in the table, each once."""
    found = {version.number: version for version in [*exported(folder, "Diary", DIARY), *stored(table)]}
    return [found[number] for number in sorted(found)]


def test_what_is_cut_is_in_the_files_as_it_was(table, tmp_path):
    before = stored(table)

    cut(table, export(table, tmp_path))

    kept = stored(table)
    assert 0 < len(kept) < COUNT // 2
    assert exported(tmp_path, "Diary", DIARY) == before[: COUNT - len(kept)]
    assert all_of(table, tmp_path) == before
    assert exported(tmp_path, "Diary", "nobody") == []
    assert [file.suffix for file in tmp_path.iterdir()] == [".parquet"]


def test_nothing_is_cut_that_is_not_in_the_files(table, tmp_path):
    up_to = export(table, tmp_path) // 2

    cut(table, up_to)

    assert stored(table)[0].number <= up_to + 1
    cut(table, 0)
    assert all_of(table, tmp_path)[0].number == 1


def test_what_is_written_meanwhile_is_not_cut(table, tmp_path):
    up_to = export(table, tmp_path)
    for number in range(3):
        Worker(table, clock=ToldClock(OLD + COUNT)).process(write("late", f"late-{number}", enqueued_at=OLD))
    before = all_of(table, tmp_path)

    cut(table, up_to)

    assert all_of(table, tmp_path) == before
    assert len(before) > COUNT


def crashes(table: Table, folder) -> Iterator[Table]:
    for call in range(1, 100):
        target = copy_of(table)
        watched = InterceptedTable(target, before=At(call, crash))
        try:
            cut(watched, export(watched, folder))
        except CrashError:
            yield target
            continue
        return


def test_after_a_crash_at_any_call_nothing_is_lost_and_running_again_finishes(table, tmp_path):
    before = stored(table)
    points = 0
    for number, crashed in enumerate(crashes(table, tmp_path)):
        points += 1
        folder = tmp_path / f"{number}"
        prepare_parts(folder)

        newest = export(crashed, folder)
        cut(crashed, newest)

        # What an earlier attempt had cut was in the files before.
        for part in tmp_path.glob("versions-*.parquet"):
            part.rename(folder / part.name)
        assert all_of(crashed, folder) == before
    assert points > 4


def test_a_lost_answer_writes_a_version_twice_and_gives_it_once(table, tmp_path):
    def lose(name: str, partition: str, number: int, *_: object) -> None:
        if number == 4:
            raise StoreUnavailableError("no answer")

    export(InterceptedTable(table, before=lose), tmp_path)
    export(table, tmp_path)

    numbers = [version.number for version in exported(tmp_path, "Diary", DIARY)]
    assert numbers == list(range(1, len(numbers) + 1))


def test_a_file_that_does_not_hold_what_was_written_is_no_part(table, tmp_path, monkeypatch):
    rows_in = archive._rows_in
    monkeypatch.setattr(archive, "_rows_in", lambda batch: list(rows_in(batch))[1:])

    with pytest.raises(ArchiveError, match="was corrupted while it was written"):
        export(table, tmp_path)

    assert list(tmp_path.iterdir()) == []


def test_unfinished_files_are_no_parts_and_are_cleared_away(table, tmp_path):
    (tmp_path / "versions-1.parquet-unfinished").write_bytes(b"a part of a file")

    with pytest.raises(ArchiveError, match="There are no exported versions in"):
        exported(tmp_path, "Diary", DIARY)
    prepare_parts(tmp_path)

    assert list(tmp_path.iterdir()) == []


def test_no_file_is_made_for_no_versions(tmp_path):
    assert export(memory_table(), tmp_path) == 0

    assert list(tmp_path.iterdir()) == []


def test_a_damaged_part_is_named(table, tmp_path):
    export(table, tmp_path)
    (part,) = tmp_path.iterdir()
    part.write_bytes(part.read_bytes()[:-50])

    with pytest.raises(ArchiveError, match=f"{part.name} of the export is corrupt"):
        exported(tmp_path, "Diary", DIARY)


def test_the_export_of_a_table_takes_no_versions(tmp_path):
    (tmp_path / "manifest.json").write_text("{}")

    with pytest.raises(UsageError, match="contains the export of a table"):
        prepare_parts(tmp_path)
