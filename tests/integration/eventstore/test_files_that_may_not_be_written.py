"""Files and folders that the user of the process has no right to write: one error that names the file.

Root may write what nobody may, so as root the program becomes another user before it comes to the file.
"""

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


READ_ONLY, UNOPENED = "attempt to write a readonly database", "unable to open database file"
CHANGES = ["writes", "barrier", "makes a table"]


@pytest.mark.parametrize(
    ("file_mode", "folder_mode", "name", "done", "refused", "why"),
    [
        (0o666, 0o777, "store.db", ["opens", "reads", *CHANGES], [], ""),
        (0o444, 0o777, "store.db", ["opens", "reads"], CHANGES, READ_ONLY),
        (0o444, 0o555, "store.db", [], ["opens"], READ_ONLY),  # there is no place for the log
        (0o666, 0o555, "store.db", [], ["opens"], READ_ONLY),
        (0o000, 0o777, "store.db", [], ["opens"], UNOPENED),
        (0o666, 0o555, "new.db", [], ["opens"], UNOPENED),
    ],
)
def test_what_may_not_be_used_is_one_error(start, file, file_mode, folder_mode, name, done, refused, why):
    file.chmod(file_mode)
    file.parent.chmod(folder_mode)
    used = file.with_name(name)

    said = start(USES_EACH_FILE, used).end()

    beside = "" if folder_mode & 0o222 else ". SQLite needs write access to its folder, too"
    error = f"StoreUrlError: The file {used} cannot be used as a store: {why}{beside}."
    assert said == [*(f"{what}: done" for what in done), *(f"{what}: {error}" for what in refused)]
    if name == "new.db":
        assert [each.name for each in file.parent.iterdir()] == ["store.db"]


def test_no_folder_is_made_in_one_that_may_only_be_read(start, file):
    file.parent.chmod(0o555)
    new = file.parent / "deeper" / "new.db"

    said = start(USES_EACH_FILE, new).end()

    assert said == [f"opens: StoreUrlError: The folder of {new} cannot be made: Permission denied."]
