"""Files and folders that the user of the process has no right to write: one error that names the file.

Root may write what nobody may, so as root the program becomes another user before it comes to the file.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from eventstore import EventData, Partition, Stream, connect, drive

USES_EACH_FILE = """
import os, sys
from eventstore import EventData, EventStoreError, Partition, Stream, connect, drive
import eventstore.backends.sqlite

if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)

store = connect(f"sqlite:///{sys.argv[1]}")

def use(partition):
    yield "reads", lambda: Stream.read(partition)
    yield "writes", lambda: Stream.write(partition, EventData({"N": 2}), expected_version=1)
    yield "barrier", partition.table.barrier
    yield "makes a table", lambda: store.table("others")

def attempt(what, act):
    try:
        result = drive(act())
    except EventStoreError as error:
        print(f"{what}: {type(error).__name__}: {error}")
        return None
    print(f"{what}: done")
    return result

table = attempt("opens", lambda: store.table("games"))
for what, act in use(Partition(table, "p")) if table else ():
    attempt(what, act)
"""


@pytest.fixture
def folder():
    """Give a folder that all users may enter; pytest's own are closed to others."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


@pytest.fixture
def file(folder):
    """Make a store with one event; all users may write it."""
    file = folder / "own" / "store.db"
    store = connect(f"sqlite:///{file}")
    drive(Stream.write(Partition(drive(store.table("games")), "p"), EventData({"N": 1}), expected_version=0))
    drive(store.close())
    file.chmod(0o666)
    file.parent.chmod(0o777)
    return file


def unusable(file, why):
    return f"StoreUrlError: The file {file} cannot be used as a store: {why}."


def test_a_file_that_all_may_write_is_used(start, file):
    said = start(USES_EACH_FILE, file).end()

    assert said == [f"{what}: done" for what in ("opens", "reads", "writes", "barrier", "makes a table")]


def test_a_file_that_may_only_be_read_is_read(start, file):
    file.chmod(0o444)

    said = start(USES_EACH_FILE, file).end()

    refused = unusable(file, "attempt to write a readonly database")
    assert said[:2] == ["opens: done", "reads: done"]
    assert said[2:] == [f"{what}: {refused}" for what in ("writes", "barrier", "makes a table")]


@pytest.mark.parametrize("mode", [0o444, 0o666])
def test_a_folder_that_may_only_be_read_has_no_place_for_the_log(start, file, mode):
    file.chmod(mode)
    file.parent.chmod(0o555)

    said = start(USES_EACH_FILE, file).end()

    assert said == [f"opens: {unusable(file, 'attempt to write a readonly database')}"]


def test_a_file_that_may_not_be_read_is_none(start, file):
    file.chmod(0o000)

    said = start(USES_EACH_FILE, file).end()

    assert said == [f"opens: {unusable(file, 'unable to open database file')}"]


def test_no_file_is_made_in_a_folder_that_may_only_be_read(start, file):
    file.parent.chmod(0o555)
    new = file.with_name("new.db")

    said = start(USES_EACH_FILE, new).end()

    assert said == [f"opens: {unusable(new, 'unable to open database file')}"]
    assert [each.name for each in file.parent.iterdir()] == ["store.db"]


def test_no_folder_is_made_in_one_that_may_only_be_read(start, file):
    file.parent.chmod(0o555)
    new = file.parent / "deeper" / "new.db"

    said = start(USES_EACH_FILE, new).end()

    assert said == [f"opens: StoreUrlError: The folder of {new} cannot be made: Permission denied."]
