"""An object that is forgotten leaves no document, whoever was storing one at that moment or died over it."""

from functools import partial

import pytest

from eventstore import InterceptedTable, StoreUnavailableError, drive
from runtime.algorithms.state_based.truncation import DAY
from runtime.clock import system_clock
from runtime.documents import ListedDocuments
from runtime.maintenance.forget import Tables, forget, referenced_documents
from tests.unit.runtime.accidents import CrashError, crash, lose_answer
from tests.unit.runtime.documents.letters_desk import Office, WatchedDocuments, ask, every_step
from tests.unit.runtime.patience import PATIENCE
from tests.unit.runtime.tables import rows
from tests.unit.runtime.worker import ends

HEADER = "SS-HEAD"


class WatchedFolder(WatchedDocuments, ListedDocuments):
    """A folder of documents with a step before and after each call."""

    async def names(self, folder: str):
        return await self._watched("names", self._store.names(folder))  # type: ignore[attr-defined] # it is a folder

    async def remove(self, folder: str) -> None:
        await self._store.remove(folder)  # type: ignore[attr-defined] # it is a folder


def nothing(*_: object) -> None:
    """Go on."""


@pytest.fixture
def office(tmp_path) -> Office:
    return Office(tmp_path / "documents")


def erase(
    office: Office, reader: str = "r-1", *, restart: bool = False, before=nothing, after=nothing
) -> bool:
    table = InterceptedTable(office.table, before=before, after=after)
    tables, documents = Tables(table, table, table), WatchedFolder(office.documents, before, after)
    options = {"restart": restart, "retries": PATIENCE, "documents": documents}
    return drive(forget(tables, "Desk", reader, system_clock(), **options))  # type: ignore[arg-type]


def left_of(office: Office, reader: str = "r-1") -> set[str]:
    return {row_key for key, row_key in rows(office.table) if key == f"Desk-{reader}"}


def test_documents_of_versions_and_of_the_dead_go_and_those_of_others_stay(office):
    for number in range(3):
        office.process(ask(f"m-{number}"))
    office.die_prepared("m-3")
    office.process(ask("m-4", reader="r-2"))
    assert len(office.files) == 5

    assert erase(office)

    assert list(office.files) == [office.announced[-1].name]
    assert not (office.folder / "Desk" / "r-1").exists()


def test_a_dead_attempt_is_known_until_a_sweep_a_day_later_and_then_only_the_tombstone_is_left(office):
    office.process(ask())
    office.die_prepared("m-2")
    erase(office)

    (dead,) = (each for each in left_of(office) if each.startswith("DOCUMENTS-"))
    assert left_of(office) == {HEADER, "DOCUMENTS", dead}
    # A request of the dead takes effect late
    late = office.folder / "Desk" / "r-1" / f"{dead.removeprefix('DOCUMENTS-')}-2-letter.txt"
    late.parent.mkdir()
    late.write_bytes(b"late")

    office.sweep()
    assert office.files == {}
    assert dead in left_of(office)
    office.sweep(days_later=2)

    assert left_of(office) == {HEADER}


def test_without_their_store_documents_stay_and_the_dead_are_left_to_a_sweep(office):
    office.process(ask())
    office.die_prepared("m-2")
    tables = Tables(office.table, office.table, office.table)
    drive(forget(tables, "Desk", "r-1", system_clock(), restart=False, retries=PATIENCE))
    assert len(office.files) == 2

    assert office.sweep() == 1

    assert list(office.files) == [office.announced[0].name]


@pytest.mark.parametrize("deed", [crash, lose_answer])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_crash_at_any_step_leaves_an_object_that_can_be_forgotten_to_the_end(tmp_path, deed, when):
    crashed = 0
    for office, step in every_step(tmp_path, deed, ask("m-0")):
        try:
            erase(office, **{"before": nothing, "after": nothing, when: step})  # type: ignore[arg-type]
        except (CrashError, StoreUnavailableError):
            erase(office)
        crashed += step.count >= step.number
        assert office.files == {}
        office.sweep(days_later=2)
        assert left_of(office) == {HEADER}
    assert crashed > 8


def forget_whole(office: Office) -> None:
    erase(office)


def test_a_worker_that_is_forgotten_at_any_step_leaves_no_document(tmp_path):
    ended = set()
    for office, step in every_step(tmp_path, lambda: None, ask("m-0")):
        step.action = partial(forget_whole, office)
        ended.update(ends(office.process(ask("m-1"), before=step)))
        if step.count < step.number:
            erase(office)  # the worker was done before
        office.sweep(days_later=2)
        assert office.files == {}
    assert ended == {"processed", "forgotten"}


def test_a_new_history_at_any_step_of_another_who_forgets_is_whole_or_forgotten_with_its_document(tmp_path):
    kept = set()
    for office, step in every_step(tmp_path, lambda: None, ask("m-0")):
        step.action = partial(begin_anew, office)
        erase(office, restart=True, before=step)
        documents = drive(referenced_documents(office.table, "Desk", "r-1"))
        assert set(office.files) == set(documents)
        kept.add(len(documents))
    assert kept == {0, 1}


def begin_anew(office: Office) -> None:
    """Forget the object, and handle a message of its new history."""
    erase(office, restart=True)
    message = ask("m-9")._replace(enqueued_at=system_clock() + DAY // 48)
    assert ends(office.process(message)) == ["processed"]
