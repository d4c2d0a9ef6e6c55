"""`consistent sweep --documents` deletes the documents of attempts that died, without Spark and without an app."""

import asyncio
from pathlib import Path

import pytest

from eventstore import connect
from tests.unit.cli.stores import TABLE
from tests.unit.runtime.documents.letters_desk import Office, ask

SWEEP = ["sweep", "--store", "sqlite:///store.db", "--table", TABLE, "--documents", "documents"]
AT_ONCE = ["--older-than", "0s"]


class Died(BaseException):
    """Stands for a worker that is killed."""


def die_when_prepared(call: str) -> None:
    if call == "prepare":
        raise Died


@pytest.fixture
def office(tmp_path) -> Office:
    """Give an office with two letters that count, and one of a worker that died."""

    async def table():
        return await connect(f"sqlite:///{tmp_path}/store.db").table(TABLE)

    office = Office(tmp_path / "documents", asyncio.run(table()))
    for number in range(2):
        office.process(ask(f"m-{number}"))
    with pytest.raises(Died):
        office.process(ask("m-2"), after=die_when_prepared)
    assert len(office.files) == 3
    return office


def test_it_deletes_what_counts_for_nothing_once_that_is_old_enough(consistent, office):
    assert consistent(*SWEEP).out == "Nothing was left behind.\n"
    assert len(office.files) == 3

    done = consistent(*SWEEP, *AT_ONCE)

    assert (done.code, done.out) == (0, "Deleted 1 document of 1 attempt that never committed.\n")
    assert set(office.files) == {letter.name for letter in office.announced}
    assert consistent(*SWEEP, *AT_ONCE).out == "Nothing was left behind.\n"


def test_it_tells_machines_how_much(consistent, office):
    assert consistent(*SWEEP, *AT_ONCE, "--json").document == {"attempts": 1, "documents": 1}


def test_a_store_of_documents_that_cannot_be_opened_is_a_wrong_usage(consistent, office):
    done = consistent(*SWEEP[:-1], "ftp://host/folder")
    assert done.code == 2
    assert "ftp://, cannot be opened" in done.err


@pytest.mark.parametrize("command", [["sweep"], ["forget", "Desk", "d-1"]], ids=["sweep", "forget"])
@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("nowhere", "nowhere"),
        ("documents/nowhere", "documents/nowhere"),
        ("file:///nowhere/at%20all", "/nowhere/at all"),
        ("store.db", "store.db"),
    ],
)
def test_a_folder_of_documents_that_is_not_there_is_told(consistent, office, command, url, shown):
    done = consistent(*command, *SWEEP[1:-1], url)

    assert done.code == 2
    assert f"There is no folder of documents at {shown}" in " ".join(done.err.split())
    assert len(office.files) == 3


def test_a_table_that_is_not_there_is_not_made(consistent, tmp_path):
    (tmp_path / "documents").mkdir()
    assert consistent(*SWEEP).code == 1
    assert not Path(tmp_path, "store.db").exists()


def test_a_batch_with_an_outbox_takes_no_documents(consistent, tmp_path):
    log = tmp_path / "log.jsonl"
    log.write_text('{"message_id": "m", "type": "PlaceOrder", "body": "{}"}\n')
    run = ["run", "--app", "samples.invoices:app", "--messages", str(log), "--out", "out", *SWEEP[1:]]
    done = consistent(*run, "--algorithm", "outbox")
    assert done.code == 2
    assert "Only the algorithm state-based stores documents" in done.err
