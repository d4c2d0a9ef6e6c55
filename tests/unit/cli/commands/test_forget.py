"""`consistent forget` erases objects, and lists files that mention them."""

import asyncio
import io
import sys
from uuid import UUID

import pytest

from eventstore import connect
from runtime.versions import head
from tests.support.logs import GAME, OTHER_GAME
from tests.unit.cli.stores import ON_STORE, TABLE, on_store, play
from tests.unit.runtime.documents.letters_desk import Office, ask

FORGET = ["forget", "ShootingRange", GAME, *ON_STORE]


def traces(folder, sought):
    return sorted(file.name for file in folder.glob("store.db*") if sought in file.read_bytes())


@pytest.fixture
def _plain_rows(monkeypatch):
    """Compress nothing, so that stored data is visible in the bytes of a file."""
    monkeypatch.setattr(head, "_RAW_BYTES", 2**20)
    monkeypatch.setattr(head, "_RAW_TAIL_BYTES", 2**20)


@pytest.mark.usefixtures("_plain_rows", "store")
def test_an_object_is_erased_from_the_files(consistent, tmp_path):
    message_ids = [f"00000000-0000-4000-8000-00000000000{number}" for number in (1, 3)]
    # The headers of the leader board of this game have the ids of its messages.
    consistent("forget", "LeaderBoard", GAME, *ON_STORE, "--yes")
    assert all(traces(tmp_path, UUID(message_id).bytes) == ["store.db"] for message_id in message_ids)

    said = consistent(*FORGET, "--yes")

    assert said.code == 0
    assert f"Erased. From now on ShootingRange rejects all messages for {GAME}." in said.err
    header = consistent("show", "ShootingRange", GAME, *ON_STORE, "--json").document
    assert (header["versions"], header["state"], header["refuses"]) == ([], None, True)
    assert header["forgotten"] == header["horizon"]
    for message_id in message_ids:
        assert traces(tmp_path, message_id.encode()) == []
        assert traces(tmp_path, UUID(message_id).bytes) == []
    # ... but another game stays
    assert consistent("show", "ShootingRange", OTHER_GAME, *ON_STORE, "--json").document["versions"]


def test_a_dry_run_shows_objects_and_files_that_mention_them(consistent, store, tmp_path):
    consistent("export", *ON_STORE, "--to", "exports/one")
    before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}

    said = consistent(*FORGET, "--dry-run", "--out", "exports", "--json")

    assert said.code == 0
    document = said.document
    assert (document["dry_run"], document["restart"]) == (True, False)
    ((key, versions, rows),) = [(each["key"], each["versions"], each["rows"]) for each in document["objects"]]
    assert (key, versions, rows) == (f"ShootingRange-{GAME}", 3, {})
    assert document["files"] == [{"file": "exports/one/rows-00000.parquet", "rows": 1}]
    assert {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()} == before
    shown = consistent(*FORGET, "--dry-run", "--out", "exports").out
    assert "Files that mention them (unchanged)" in shown
    assert GAME in shown
    (tmp_path / "exports" / "part.parquet").write_bytes(b"no parquet")
    unreadable = consistent(*FORGET, "--dry-run", "--out", "exports")
    assert (unreadable.code, "exports/part.parquet of the export is corrupt" in unreadable.err) == (1, True)


def test_several_objects_are_forgotten_under_any_spelling_of_their_ids(consistent, store):
    ids = [GAME.upper(), OTHER_GAME]

    document = consistent("forget", "ShootingRange", *ids, *ON_STORE, "--yes", "--json").document

    assert [each["business_id"] for each in document["objects"]] == [GAME, OTHER_GAME]


def test_an_object_starts_a_new_history_with_restart(consistent, store):
    assert "starts a new history" in consistent(*FORGET, "--yes", "--restart").err

    on_store(store, play)  # the same messages, which have no time

    shown = consistent("show", "ShootingRange", GAME, *ON_STORE)
    assert ", and started a new history" in shown.out
    assert consistent("show", "ShootingRange", GAME, *ON_STORE, "--json").document["versions"] == []


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("n\n", 1)])
def test_a_terminal_is_asked(consistent, store, monkeypatch, answer, code):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setattr(sys, "stdin", Terminal(answer))

    said = consistent(*FORGET)

    assert said.code == code
    assert "Erasing 1 object of ShootingRange cannot be undone. Continue?" in said.err
    left = consistent("show", "ShootingRange", GAME, *ON_STORE, "--json").document["versions"]
    assert bool(left) is (code == 1)


@pytest.fixture
def office(tmp_path):
    """Store two documents of one object, and one of another."""

    async def table():
        return await connect(f"sqlite:///{tmp_path}/store.db").table(TABLE)

    office = Office(tmp_path / "documents", asyncio.run(table()))
    for number, reader in enumerate(["r-1", "r-1", "r-2"]):
        office.process(ask(f"m-{number}", reader=reader))
    return office


def test_documents_are_listed_and_deleted_with_their_store(consistent, office):
    forgotten = ["forget", "Desk", "r-1", *ON_STORE]
    *first, last = [letter.name for letter in office.announced]

    # Without their store, the documents that versions refer to are listed
    listed = consistent(*forgotten, "--dry-run")
    assert "Documents that stay, because --documents is missing" in listed.out
    assert all(name in listed.out for name in first)
    document = consistent(*forgotten, "--dry-run", "--json").document
    assert document["documents"] == {"names": first, "deleted": False}

    # ... and with it they are deleted, also those of versions forgotten before
    consistent(*forgotten, "--yes")
    assert set(office.files) == {*first, last}
    document = consistent(*forgotten, "--yes", "--documents", "documents", "--json").document
    assert (sorted(document["documents"]["names"]), document["documents"]["deleted"]) == (sorted(first), True)
    assert set(office.files) == {last}
