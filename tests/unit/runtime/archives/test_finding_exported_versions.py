"""Versions that were cut are found in their files by stream and message, a few row groups at a time."""

from collections import Counter
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from eventstore import Row, Table, drive
from runtime.algorithms.state_based.replay import Verdict, Verifier
from runtime.algorithms.state_based.truncation import (
    TruncationChoices,
    take_old,
    truncate_stream,
)
from runtime.archives import tables as importing
from runtime.archives import versions as archive
from runtime.archives.tables import RowFiles, export_table, import_table, read_batches
from runtime.archives.versions import ExportedVersions, VersionPart
from runtime.ledger.batch import OpenBatches
from runtime.maintenance.forget import Tables, forget
from runtime.messages.envelope import id_key
from runtime.messages.parsing import prepare
from tests.unit.runtime.archives.tables import fill, ignore
from tests.unit.runtime.diary import app, write
from tests.unit.runtime.patience import PATIENCE
from tests.unit.runtime.tables import memory_table
from tests.unit.runtime.worker import DAY, NOW, ToldClock, Worker, stored

OLD = NOW - 30 * DAY
DIARIES = [f"d-{number:02}" for number in range(12)]
COUNT = 8
MESSAGES = {
    diary: [
        write(f"line {number}", f"{diary}-m-{number}", enqueued_at=OLD + number)._replace(
            body=f'{{"diary": "{diary}", "line": "{number}"}}'
        )
        for number in range(COUNT)
    ]
    for diary in DIARIES
}


def truncate(table: Table, folder: Path, *, keep_last: int) -> None:
    """Cut all diaries as a worker does, once what goes is in a file."""
    rules = TruncationChoices(keep_last=keep_last, allow_undated=True, acknowledged_after=0).as_of(
        NOW, OpenBatches()
    )
    newest = {}
    with VersionPart(folder) as part:
        for diary in DIARIES:
            add = partial(part.add, "Diary", diary)
            newest[diary], _ = drive(take_old(table, f"Diary-{diary}", rules, PATIENCE, add))
        part.close()
    for diary in DIARIES:
        drive(truncate_stream(table, f"Diary-{diary}", rules, PATIENCE, up_to=newest[diary]))


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Table:
    """Give a table that was truncated twice, each time into a file with row groups of ten versions."""
    monkeypatch.setattr(archive, "_GROUP_ROWS", 10)
    table = memory_table()
    for diary, messages in MESSAGES.items():
        for number, message in enumerate(messages):
            Worker(table, clock=ToldClock(OLD + number), business_id=diary).process(message)
    truncate(table, tmp_path, keep_last=4)
    truncate(table, tmp_path, keep_last=1)
    assert [each.number for each in stored(table, business_id="d-03")] == [COUNT]
    return table


def verdicts(table: Table, folder: Path | None, diary: str) -> Counter[Verdict]:
    handler = app.handlers["Diary"]
    find_cut = None if folder is None else ExportedVersions(folder).find
    verifier = Verifier(table, handler, PATIENCE, find_cut=find_cut)
    prepared = [prepare(handler, diary, message) for message in MESSAGES[diary]]
    return Counter(found.verdict for found in drive(verifier.verify(diary, prepared)))


@pytest.mark.parametrize("diary", DIARIES[::4])
def test_with_the_export_the_whole_history_is_verified(table: Table, tmp_path: Path, diary: str):
    assert verdicts(table, None, diary) == {Verdict.MATCH: 1, Verdict.NOT_KEPT: COUNT - 1}

    assert verdicts(table, tmp_path, diary) == {Verdict.MATCH: COUNT}


def test_versions_from_before_the_object_was_forgotten_are_not_taken_for_those_of_its_new_history(
    table: Table, tmp_path: Path
):
    tables = Tables(table, table, table)
    drive(forget(tables, "Diary", "d-03", OLD + DAY, restart=True, retries=PATIENCE))
    # Given that its new history was cut and exported too
    again = [
        message._replace(message_id=f"again-{number}", enqueued_at=OLD + 2 * DAY)
        for number, message in enumerate(MESSAGES["d-03"])
    ]
    for message in again:
        Worker(table, clock=ToldClock(OLD + 2 * DAY), business_id="d-03").process(message)
    truncate(table, tmp_path, keep_last=1)

    assert verdicts(table, tmp_path, "d-03") == {Verdict.NOT_KEPT: COUNT}
    handler = app.handlers["Diary"]
    verifier = Verifier(table, handler, PATIENCE, find_cut=ExportedVersions(tmp_path).find)
    found = drive(verifier.verify("d-03", [prepare(handler, "d-03", message) for message in again]))
    assert {each.verdict for each in found} == {Verdict.MATCH}


def test_a_rule_that_changed_is_found_in_versions_that_were_cut(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    # Given that the code was changed since: it writes what it did not
    handler = app.handlers["Diary"]
    (*_, message) = MESSAGES["d-03"][:3]
    other = message._replace(body=str(message.body).replace("2", "two"))
    monkeypatch.setattr("runtime.algorithms.state_based.replay.is_copy", lambda *_: True)

    verifier = Verifier(table, handler, PATIENCE, find_cut=ExportedVersions(tmp_path).find)
    (found,) = drive(verifier.verify("d-03", [prepare(handler, "d-03", other)]))

    assert (found.verdict, found.version) == (Verdict.NONDETERMINISTIC, 3)


def test_a_stream_that_was_never_cut_asks_no_file(table: Table):
    never = write("line", "never", enqueued_at=NOW)._replace(body='{"diary": "new", "line": "x"}')
    Worker(table, business_id="new").process(never)

    def find(*_: object):
        raise AssertionError("no file is asked")

    verifier = Verifier(table, app.handlers["Diary"], PATIENCE, find_cut=find)
    unknown = prepare(app.handlers["Diary"], "new", never._replace(message_id="unknown"))
    assert [each.verdict for each in drive(verifier.verify("new", [unknown]))] == [Verdict.UNKNOWN]


def test_each_stream_is_found_by_its_ids_and_no_other(table: Table, tmp_path: Path):
    exported = ExportedVersions(tmp_path)

    for diary in DIARIES:
        ids = [id_key(message.message_id) for message in MESSAGES[diary]]
        assert exported.find("Diary", diary, ids).keys() == set(ids[:-1])
    assert exported.find("Diary", "d-99", ids) == exported.find("Other", "d-03", ids) == {}


def test_reading_a_file_holds_no_more_than_a_row_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(importing, "GROUP_ROWS", 16)
    files, groups = RowFiles(tmp_path), 30
    for number in range(groups):
        for row in range(16):
            files.add(Row("p", f"{number}-{row}", "", {"Data": bytes([number, row]) * 32_768}))
    files.end_file()
    path, size = tmp_path / files.done[0].name, 16 * 2 * 32_768
    before, most, count = pa.total_allocated_bytes(), 0, 0

    for read in read_batches(path):
        count += len(read)
        most = max(most, pa.total_allocated_bytes() - before)

    assert count == 16 * groups
    assert most < 5 * size  # the file is thirty times as large


def test_an_import_holds_no_more_rows_than_were_read_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("runtime.archives.tables._READ_ROWS", 20)
    source, target = memory_table(), memory_table()
    drive(fill(source))
    manifest = drive(export_table(source, "games", tmp_path / "export", ignore))
    given: list[int] = []
    write_some = importing._write

    async def counted(table: Table, waiting) -> None:
        given.append(sum(len(operations) for _, operations in waiting))
        await write_some(table, waiting)

    monkeypatch.setattr(importing, "_write", counted)
    drive(import_table(target, "other", tmp_path / "export", manifest, ignore))

    assert sum(given) == manifest.rows
    assert max(given) <= 20
