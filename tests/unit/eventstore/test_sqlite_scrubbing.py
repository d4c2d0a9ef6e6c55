"""What was deleted or overwritten is in no file of a SQLite store any more, once it was scrubbed."""

from __future__ import annotations

import sqlite3

import pytest

from eventstore import Operation, StoreUnavailableError, connect, drive
from eventstore.backends import sqlite_file
from eventstore.port import LeavesTraces

CANARY = b"a-canary-that-sings"
MANY = 40


@pytest.fixture
def path(tmp_path):
    return tmp_path / "store.db"


@pytest.fixture
def table(path):
    store = connect(f"sqlite:///{path}")
    yield drive(store.table("games"))
    drive(store.close())


def write_and_delete(table):
    """Write canaries into keys, small and large properties, overwrite some and delete some."""
    table._file.connection().execute("PRAGMA secure_delete=OFF")  # which some builds of SQLite have on
    for number in range(MANY):
        large = CANARY * 3000
        key = f"{CANARY.decode()}-{number}"
        drive(table.transact("p", [Operation.insert(key, {"Small": CANARY, "Large": large})]))
        drive(table.transact("q", [Operation.insert(f"{number}", {"Text": CANARY.decode() * 3})]))
    for number in range(MANY):
        drive(table.transact("p", [Operation.delete(f"{CANARY.decode()}-{number}")]))
        drive(table.transact("q", [Operation.replace(f"{number}", {"Text": "silence"})]))


def traces(path):
    """Return the files that hold a canary."""
    files = [path.with_name(path.name + suffix) for suffix in ("", "-wal", "-shm")]
    return {file.name for file in files if file.exists() and CANARY in file.read_bytes()}


@pytest.mark.parametrize("checkpointed", [False, True])
def test_no_file_holds_a_trace(path, table, checkpointed):
    write_and_delete(table)
    if checkpointed:
        table._file.connection().execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert traces(path) == ({"store.db"} if checkpointed else {"store.db-wal"})

    drive(table.scrub())

    assert traces(path) == set()
    assert {row.properties["Text"] for row in drive(table.query("q", "", "~")).rows} == {"silence"}


def test_a_table_says_that_its_store_leaves_traces(table):
    assert isinstance(table, LeavesTraces)
    assert not isinstance(drive(connect("memory:").table("games")), LeavesTraces)


def test_an_idle_connection_of_another_process_is_no_obstacle(path, table):
    write_and_delete(table)
    other = sqlite3.connect(path)
    other.execute("SELECT count(*) FROM games_rows").fetchall()

    drive(table.scrub())

    assert traces(path) == set()
    other.close()


def test_a_reader_that_keeps_it_from_being_done_is_told(path, table, monkeypatch):
    monkeypatch.setattr(sqlite_file, "BUSY_SECONDS", 0.1)
    write_and_delete(table)
    table._file.connection().execute("PRAGMA busy_timeout=100")
    reader = sqlite3.connect(path, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM games_rows").fetchall()

    with pytest.raises(StoreUnavailableError):
        drive(table.scrub())

    reader.close()
    drive(table.scrub())
    assert traces(path) == set()
