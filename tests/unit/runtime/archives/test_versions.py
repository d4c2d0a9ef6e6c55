"""Versions that truncation cuts are in files first, and are found there by stream and message as they were."""

from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from eventstore import InterceptedTable, StoreUnavailableError, Table, drive
from runtime.algorithms.state_based.replay import Verdict, Verifier
from runtime.algorithms.state_based.truncation import TruncationChoices, take_old, truncate_stream
from runtime.archives import versions as archive
from runtime.archives.versions import ExportedVersions, VersionPart, prepare_parts
from runtime.errors import ArchiveError, UsageError
from runtime.ledger.batch import BatchContext, OpenBatches
from runtime.maintenance.forget import Tables, forget
from runtime.messages.envelope import Envelope, id_key
from runtime.messages.parsing import prepare
from runtime.versions import limits
from runtime.versions.run import Version
from tests.support.exported import exported
from tests.unit.runtime.accidents import At, CrashError, crash
from tests.unit.runtime.diary import DIARY, app, ponder, write
from tests.unit.runtime.patience import PATIENCE
from tests.unit.runtime.tables import copy_of, memory_table
from tests.unit.runtime.worker import DAY, NOW, ToldClock, Worker, stored

OLD = NOW - 30 * DAY
COUNT = 60
CHOICES = TruncationChoices(older_than=DAY, allow_undated=True, acknowledged_after=0)
RULES = CHOICES.as_of(NOW, OpenBatches(next=2))


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


def export(table: Table, folder: Path, rules=RULES, diary: str = DIARY) -> int:
    """Write what is to be cut to a file, as a worker does, and return up to where."""
    with VersionPart(folder) as part:
        add = partial(part.add, "Diary", diary)
        newest, _ = drive(take_old(table, f"Diary-{diary}", rules, PATIENCE, add))
        part.close()
    return newest


def cut(table: Table, up_to: int, rules=RULES, diary: str = DIARY) -> None:
    drive(truncate_stream(table, f"Diary-{diary}", rules, PATIENCE, up_to=up_to))


def all_of(table: Table, folder: Path) -> list[Version]:
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
    assert [file.suffix for file in tmp_path.iterdir()] == [".parquet"]


def test_neither_what_is_not_in_the_files_nor_what_is_written_meanwhile_is_cut(table, tmp_path):
    up_to = export(table, tmp_path)
    for number in range(3):
        Worker(table, clock=ToldClock(OLD + COUNT)).process(write("late", f"late-{number}", enqueued_at=OLD))
    before = all_of(table, tmp_path)
    assert len(before) > COUNT

    for most in (0, up_to // 2, up_to):
        cut(table, most)
        assert stored(table)[0].number <= most + 1
        assert all_of(table, tmp_path) == before


def crashes(table: Table, folder: Path) -> Iterator[Table]:
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

        cut(crashed, export(crashed, folder))

        # What an earlier attempt had cut was in the files before
        for part in tmp_path.glob("versions-*.parquet"):
            part.rename(folder / part.name)
        assert all_of(crashed, folder) == before
    assert points > 4


def test_a_lost_answer_writes_a_version_twice_and_gives_it_once(table, tmp_path):
    def lose(name: str, partition: str, number: int, *_: object) -> None:
        if number == 4:
            raise StoreUnavailableError("no answer")

    export(InterceptedTable(table, before=lose), tmp_path)
    up_to = export(table, tmp_path)

    assert [version.number for version in exported(tmp_path, "Diary", DIARY)] == list(range(1, up_to + 1))


def test_a_file_that_does_not_hold_what_was_written_is_no_part(table, tmp_path, monkeypatch):
    rows_in = archive._rows_in
    monkeypatch.setattr(archive, "_rows_in", lambda batch: list(rows_in(batch))[1:])

    with pytest.raises(ArchiveError, match="was corrupted while it was written"):
        export(table, tmp_path)

    assert list(tmp_path.iterdir()) == []


def test_a_folder_has_no_parts_without_versions_nor_unfinished_ones_and_no_export_of_a_table(tmp_path):
    assert export(memory_table(), tmp_path) == 0
    assert list(tmp_path.iterdir()) == []

    (tmp_path / "versions-1.parquet-unfinished").write_bytes(b"a part of a file")
    with pytest.raises(ArchiveError, match="There are no exported versions in"):
        ExportedVersions(tmp_path)
    prepare_parts(tmp_path)
    assert list(tmp_path.iterdir()) == []

    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(UsageError, match="contains the export of a table"):
        prepare_parts(tmp_path)


def test_a_damaged_part_is_named(table, tmp_path):
    export(table, tmp_path)
    (part,) = tmp_path.iterdir()
    part.write_bytes(part.read_bytes()[:-50])

    with pytest.raises(ArchiveError, match=f"{part.name} of the export is corrupt"):
        ExportedVersions(tmp_path).find("Diary", DIARY, [id_key("m-1")])


# Many streams that were cut twice, each time into a file: the messages of each are found with its export.

DIARIES = [f"d-{number:02}" for number in range(12)]
LINES = 8


def lines_of(diary: str, name: str = "m", at: int = OLD) -> list[Envelope]:
    return [
        write(f"{number}", f"{diary}-{name}-{number}", diary, enqueued_at=at + number)
        for number in range(LINES)
    ]


def cut_all(table: Table, folder: Path, keep_last: int) -> None:
    choices = TruncationChoices(keep_last=keep_last, allow_undated=True, acknowledged_after=0)
    rules = choices.as_of(NOW, OpenBatches())
    for diary in DIARIES:
        cut(table, export(table, folder, rules, diary), rules, diary)


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Table:
    monkeypatch.setattr(archive, "_GROUP_ROWS", 3)
    table = memory_table()
    for diary in DIARIES:
        for number, message in enumerate(lines_of(diary)):
            Worker(table, clock=ToldClock(OLD + number), business_id=diary).process(message)
    cut_all(table, tmp_path, keep_last=4)
    cut_all(table, tmp_path, keep_last=1)
    assert [each.number for each in stored(table, business_id="d-03")] == [LINES]
    return table


def verdicts(table: Table, find_cut, messages: list[Envelope], diary: str = "d-03") -> Counter[Verdict]:
    handler = app.handlers["Diary"]
    verifier = Verifier(table, handler, PATIENCE, find_cut=find_cut)
    prepared = [prepare(handler, diary, message) for message in messages]
    return Counter(found.verdict for found in drive(verifier.verify(diary, prepared)))


def test_with_the_export_the_whole_history_is_verified(streams: Table, tmp_path: Path, monkeypatch):
    find, messages = ExportedVersions(tmp_path).find, lines_of("d-03")

    assert verdicts(streams, None, messages) == {Verdict.MATCH: 1, Verdict.NOT_KEPT: LINES - 1}
    assert verdicts(streams, find, messages) == {Verdict.MATCH: LINES}

    # A rule that changed is found in versions that were cut
    other = messages[2]._replace(body=str(messages[2].body).replace("2", "two"))
    monkeypatch.setattr("runtime.algorithms.state_based.replay.is_copy", lambda *_: True)
    assert verdicts(streams, find, [other]) == {Verdict.NONDETERMINISTIC: 1}


def test_versions_from_before_the_object_was_forgotten_are_not_of_its_new_history(streams, tmp_path):
    tables = Tables(streams, streams, streams)
    drive(forget(tables, "Diary", "d-03", OLD + DAY, restart=True, retries=PATIENCE))
    # Given that its new history was cut and exported too
    again = lines_of("d-03", "again", OLD + 2 * DAY)
    for message in again:
        Worker(streams, clock=ToldClock(OLD + 2 * DAY), business_id="d-03").process(message)
    cut_all(streams, tmp_path, keep_last=1)
    find = ExportedVersions(tmp_path).find

    assert verdicts(streams, find, lines_of("d-03")) == {Verdict.NOT_KEPT: LINES}
    assert verdicts(streams, find, again) == {Verdict.MATCH: LINES}


def test_a_stream_that_was_never_cut_asks_no_file(streams: Table):
    Worker(streams, business_id="new").process(write("x", "never", "new", enqueued_at=NOW))

    def find(*_: object):
        raise AssertionError("no file is asked")

    unknown = write("x", "unknown", "new", enqueued_at=NOW)
    assert verdicts(streams, find, [unknown], "new") == {Verdict.UNKNOWN: 1}


def test_each_stream_is_found_by_its_ids_and_no_other(streams: Table, tmp_path: Path):
    find = ExportedVersions(tmp_path).find

    for diary in DIARIES:
        ids = [id_key(message.message_id) for message in lines_of(diary)]
        assert find("Diary", diary, ids).keys() == set(ids[:-1])
    assert find("Diary", "d-99", ids) == find("Other", "d-11", ids) == {}
