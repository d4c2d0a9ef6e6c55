"""A table moves from store to store by files: its rows are the same, and nothing else is ever taken for them."""

import json
from itertools import count

import pytest

from eventstore import InterceptedTable, Operation, connect
from runtime.archives import tables as exporting
from runtime.archives.tables import MANIFEST
from runtime.errors import ArchiveError, UsageError
from tests.support.names import new_name
from tests.unit.runtime.archives.tables import exported, fill, imported, packed, read_all


class KilledError(Exception):
    """Stands for a process that was killed."""


@pytest.fixture(autouse=True)
def small_files(monkeypatch):
    """Let files have few rows, so that there are several."""
    monkeypatch.setattr(exporting, "GROUP_ROWS", 50)
    monkeypatch.setattr(exporting, "FILE_BYTES", 1_000_000)


@pytest.fixture
def other(store, run):
    """Give another table of the same store, which is empty."""
    return run(store.table(new_name()))


@pytest.fixture
def export(table, run, tmp_path):
    """Export a table with rows of all kinds, and give the folder."""
    run(fill(table))
    folder = tmp_path / "export"
    run(exported(table, folder))
    return folder


def dying(table, call, *, effect=True):
    def die(name, partition, number, *_):
        if number == call:
            raise KilledError

    return InterceptedTable(table, after=die) if effect else InterceptedTable(table, before=die)


def test_a_table_that_went_through_every_store_comes_back_the_same(
    run, table, other, export, tmp_path, azurite_url
):

    async def pass_through(url, folder, next_folder):
        async with connect(url) as store:
            between = await store.table(new_name())
            await imported(between, folder)
            await exported(between, next_folder)

    assert len(list(export.glob("rows-*.parquet"))) > 1
    folders = [export, *(tmp_path / name for name in "abc")]
    urls = [f"memory:{new_name()}", f"sqlite:///{tmp_path}/through.db", azurite_url]
    for url, folder, next_folder in zip(urls, folders, folders[1:], strict=False):
        run(pass_through(url, folder, next_folder))
    run(imported(other, folders[-1]))

    assert run(packed(other)) == run(packed(table))
    assert len(run(read_all(other))) == 2 + 230 + 12
    assert len({json.loads((folder / MANIFEST).read_text())["digest"] for folder in folders}) == 1


def test_rows_that_somebody_else_writes_meanwhile_are_found(run, table, other, export, tmp_path):
    def watched(target, at, key, operation):
        async def write(name, partition, number):
            if number == at:
                await target.transact(key, [operation])

        return InterceptedTable(target, before=write)

    change = Operation.merge("r000", {"N": -1})
    with pytest.raises(ArchiveError, match="was written to while it was exported"):
        run(exported(watched(table, 2, "many", change), tmp_path / "no export"))
    assert not (tmp_path / "no export" / MANIFEST).exists()

    with pytest.raises(ArchiveError, match="another process has written to it"):
        run(imported(watched(other, 6, "mine", Operation.insert("r", {"V": 1})), export))


def test_an_export_that_was_killed_at_any_call_begins_anew(run, table, tmp_path):
    run(fill(table))
    folder = tmp_path / "export"
    for call in count(1):
        watched = dying(table, call)
        try:
            run(exported(watched, folder))
        except KilledError:
            assert not (folder / MANIFEST).exists()
            continue
        break
    assert call > 2

    with pytest.raises(UsageError, match="contains an export already"):
        run(exported(table, folder))
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match="is not empty"):
        run(exported(table, tmp_path))
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_an_import_that_was_killed_at_any_call_goes_on(run, store, table, export):
    reference = run(packed(table))
    for call in range(1, 200, 13):
        for effect in (False, True):
            target = run(store.table(new_name()))
            try:
                run(imported(dying(target, call, effect=effect), export))
            except KilledError:
                if run(read_all(target)):
                    with pytest.raises(ArchiveError, match="import into it was interrupted"):
                        run(exported(target, export.with_name("no")))
                run(imported(target, export))
            else:
                break
            assert run(packed(target)) == reference
        else:
            continue
        break
    assert call > 13


def test_a_broken_off_import_takes_no_other_export_in_its_place(run, table, other, export, tmp_path):
    run(table.transact("many", [Operation.delete("r000")]))
    run(exported(table, tmp_path / "another"))
    with pytest.raises(KilledError):
        run(imported(dying(other, 4), export))

    with pytest.raises(ArchiveError, match="another export into the table other was interrupted"):
        run(imported(other, tmp_path / "another"))


def test_a_table_that_is_not_empty_is_refused_and_left_as_it_is(run, table, other, export):
    run(other.transact("mine", [Operation.insert("r", {"V": 1})]))

    with pytest.raises(ArchiveError, match="The table other is not empty"):
        run(imported(other, export))

    assert [(row.partition_key, row.row_key) for row in run(read_all(other))] == [("mine", "r")]


def damage(file, _other):
    data = bytearray(file.read_bytes())
    data[100] ^= 1  # within the first page
    file.write_bytes(data)


@pytest.mark.parametrize(
    ("harm", "sentence"),
    [
        (damage, "of the export is corrupt"),
        (lambda file, _: file.write_bytes(file.read_bytes()[:-100]), "of the export is corrupt"),
        (lambda file, _: file.unlink(), "of the export is missing"),
        (lambda file, other: file.write_bytes(other.read_bytes()), "of .* corrupt: its .* rows are not the"),
    ],
)
def test_a_damaged_export_is_named_before_anything_is_written(run, other, export, harm, sentence):
    first, file = sorted(export.glob("rows-*.parquet"))[:2]
    harm(file, first)

    with pytest.raises(ArchiveError, match=f"{file.name} {sentence}"):
        run(imported(other, export))

    if "rows are not" not in sentence:
        assert run(read_all(other)) == []


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"format": 1}, "has the format 1, but this version reads only 2"),
        ({"rows": 3}, "do not match its files"),
        ({"files": [{"name": "x"}]}, "manifest.json of the export is corrupt"),
    ],
)
def test_a_format_of_the_future_and_a_manifest_that_does_not_fit_are_refused(
    run, other, export, change, sentence
):
    (export / MANIFEST).write_text(json.dumps(json.loads((export / MANIFEST).read_text()) | change))

    with pytest.raises(ArchiveError, match=sentence):
        run(imported(other, export))
