"""What is chosen between speed and what a power cut may undo, for each connection to a file.

Commits go to the write-ahead log and are not waited for (NORMAL): they survive the process at once, and a power cut
from the next barrier on. A barrier waits (FULL), and where the system has a way to wait for the disk's own cache
(fullfsync, on macOS), for that as well.
"""

from __future__ import annotations

import sqlite3
import threading

import pytest

from eventstore import Operation, StoreUnavailableError, connect, drive
from eventstore.backends import sqlite_file

NORMAL = 1
CHOSEN = {
    "journal_mode": "wal",
    "synchronous": NORMAL,
    "fullfsync": 1,
    "wal_autocheckpoint": 4000,
    "cache_size": -8000,
    "busy_timeout": 60_000,
}


@pytest.fixture
def store(tmp_path):
    store = connect(f"sqlite:///{tmp_path}/store.db")
    yield store
    drive(store.close())


@pytest.fixture
def table(store):
    return drive(store.table("games"))


def settings(store):
    connection = store._file.connection()
    return {name: connection.execute(f"PRAGMA {name}").fetchone()[0] for name in CHOSEN}


def test_a_new_file_and_an_old_one_are_opened_alike(store, table):
    assert settings(store) == CHOSEN

    drive(store.close())

    assert settings(store) == CHOSEN


def test_another_thread_waits_for_the_disk_no_more_and_no_less(store, table):
    found = []

    def look():
        found.append(settings(store))
        store._file.connection().close()

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()

    assert found == [CHOSEN]


def test_writes_and_barriers_leave_what_was_chosen(store, table):
    drive(table.transact("p", [Operation.insert("r", {"V": 1})]))
    drive(table.barrier())
    drive(table.barrier())

    assert settings(store) == CHOSEN


def test_a_barrier_that_failed_leaves_what_was_chosen(tmp_path, monkeypatch):
    monkeypatch.setattr(sqlite_file, "BUSY_SECONDS", 0.02)
    store = connect(f"sqlite:///{tmp_path}/store.db")
    table = drive(store.table("games"))
    other = sqlite3.connect(tmp_path / "store.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    with pytest.raises(StoreUnavailableError, match="locked"):
        drive(table.barrier())

    assert settings(store) == {**CHOSEN, "busy_timeout": 20}
    other.close()
    drive(table.barrier())
    drive(store.close())
