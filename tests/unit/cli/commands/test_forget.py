"""`consistent forget` erases an object, and says what names it elsewhere."""

import asyncio
import io
import json
import sys
from uuid import UUID

import pytest

from eventstore import connect
from runtime.versions import head
from tests.support.logs import GAME, OTHER_GAME
from tests.unit.cli.stores import TABLE, on_store, play
from tests.unit.runtime.documents.letters_desk import Office, ask

ON_STORE = ["--store", "sqlite:///store.db", "--table", TABLE]
FORGET = ["forget", "ShootingRange", GAME, *ON_STORE]


def traces(folder, canary):
    sought = canary.encode() if isinstance(canary, str) else canary
    return sorted(file.name for file in folder.glob("store.db*") if sought in file.read_bytes())


@pytest.fixture
def _plain_rows(monkeypatch):
    """Compress nothing, so that what is stored is seen in the bytes of a file."""
    monkeypatch.setattr(head, "_RAW_BYTES", 2**20)
    monkeypatch.setattr(head, "_RAW_TAIL_BYTES", 2**20)


@pytest.mark.usefixtures("_plain_rows", "store")
def test_an_object_is_erased_from_the_files(consistent, tmp_path):
    message_ids = [f"00000000-0000-4000-8000-00000000000{number}" for number in (1, 3)]
    # A board of the same game has its messages' ids in headers.
    consistent("forget", "LeaderBoard", GAME, *ON_STORE, "--yes")
    assert all(traces(tmp_path, UUID(message_id).bytes) == ["store.db"] for message_id in message_ids)

    said = consistent(*FORGET, "--yes")

    assert said.code == 0
    assert f"Erased. From now on ShootingRange rejects all messages for {GAME}." in said.err
    header = consistent("show", "ShootingRange", GAME, *ON_STORE, "--json").document
    assert (header["versions"], header["state"], header["refuses"]) == ([], None, True)
    assert header["forgotten"] == header["horizon"]
    for message_id in message_ids:
        assert traces(tmp_path, message_id) == []
        assert traces(tmp_path, UUID(message_id).bytes) == []
    # ... but another game stays
    assert consistent("show", "ShootingRange", OTHER_GAME, *ON_STORE, "--json").document["versions"]


def test_what_would_be_erased_is_said_and_files_are_listed(consistent, store, tmp_path):
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
    shown = consistent(*FORGET, "--dry-run", "--out", "exports")
    assert "Files that mention them (unchanged)" in shown.out
    assert GAME in shown.out


def test_several_objects_and_other_spellings_of_an_id_are_taken(consistent, store):
    ids = [GAME.upper(), OTHER_GAME]

    document = consistent("forget", "ShootingRange", *ids, *ON_STORE, "--yes", "--json").document

    assert [each["business_id"] for each in document["objects"]] == [GAME, OTHER_GAME]


def test_an_object_begins_anew_when_that_is_asked_for(consistent, store, tmp_path):
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


def test_a_file_that_cannot_be_read_is_named(consistent, store, tmp_path):
    (tmp_path / "outcomes").mkdir()
    (tmp_path / "outcomes" / "part.parquet").write_bytes(b"no parquet")

    said = consistent(*FORGET, "--dry-run", "--out", "outcomes")

    assert said.code == 1
    assert "outcomes/part.parquet of the export is corrupt" in said.err
    assert json.loads(consistent(*FORGET, "--dry-run", "--json").out)["objects"]


@pytest.fixture
def office(tmp_path):
    """Give an office with two letters to one reader, and one to another."""

    async def table():
        return await connect(f"sqlite:///{tmp_path}/store.db").table(TABLE)

    office = Office(tmp_path / "documents", asyncio.run(table()))
    for number, reader in enumerate(["r-1", "r-1", "r-2"]):
        office.process(ask(f"m-{number}", reader=reader))
    return office


def test_documents_are_listed_and_with_their_store_deleted(consistent, office):
    forgotten = ["forget", "Desk", "r-1", *ON_STORE]
    *first, last = [letter.name for letter in office.announced]

    # Without the store of documents those that versions refer to are listed
    listed = consistent(*forgotten, "--dry-run")
    assert "Documents that stay, because --documents is missing" in listed.out
    assert all(name in listed.out for name in first)
    document = consistent(*forgotten, "--dry-run", "--json").document
    assert document["documents"] == {"names": first, "deleted": False}

    # ... and with it they are deleted, those of versions that were forgotten before too
    consistent(*forgotten, "--yes")
    assert set(office.files) == {*first, last}
    document = consistent(*forgotten, "--yes", "--documents", "documents", "--json").document
    assert (sorted(document["documents"]["names"]), document["documents"]["deleted"]) == (sorted(first), True)
    assert set(office.files) == {last}
