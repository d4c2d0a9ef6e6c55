"""A process that is killed leaves its last transaction whole or not at all, and no lock behind."""

import sqlite3
from contextlib import contextmanager
from random import Random

import pytest

from eventstore import EventData, Partition, Stream, connect, drive
from eventstore.backends import sqlite as sqlite_file

HALTS_IN_A_TRANSACTION = """
import sys
from eventstore import EventData, Include, Partition, Stream, connect, drive
from eventstore.backends.sqlite import Changes

url, last = sys.argv[1], int(sys.argv[2])
change = Changes._change

def change_and_halt(changes, index, *operation):
    etag = change(changes, index, *operation)
    if index == last:
        print("halted", flush=True)
        sys.stdin.read()
    return etag

store = connect(url)
stream = drive(Stream.open(Partition(drive(store.table("games")), "p")))
# What it changes goes to the log before it commits, as in a transaction that is larger than the cache.
store.connection().execute("PRAGMA cache_size=1")
Changes._change = change_and_halt
data = bytes(60_000)
events = EventData({"N": 2, "Data": data}, id="second"), EventData({"N": 3, "Data": data})
drive(Stream.write(stream, *events, properties={"Total": 6}, includes=[Include.insert("list", {"N": 2})]))
"""
OPERATIONS = 5

SAYS_ITS_STATEMENTS = """
import sys
from eventstore import EventData, Partition, Stream, connect, drive

store = connect(sys.argv[1])
stream = drive(Stream.open(Partition(drive(store.table("games")), "p")))
store.connection().set_trace_callback(lambda statement: print(statement, flush=True))
drive(Stream.write(stream, EventData({"N": 7}), properties={"Total": 8}))
"""

WRITES_ON_AND_ON = """
import sys
from random import Random
from eventstore import EventData, Partition, Stream, connect, drive

url, seed = sys.argv[1:]
random = Random(seed)
store = connect(url)
table = drive(store.table("games"))
# Checkpoints come often, so that some die in the middle of one.
store.connection().execute("PRAGMA wal_autocheckpoint=40")
while True:
    partition = Partition(table, random.choice("abc"))
    stream = drive(Stream.try_open(partition)) or Stream(partition)
    total = stream.properties["Total"] if stream.version else 0
    number = random.randrange(2000)
    event = EventData({"N": number, "Data": bytes(10 * number)}, id=str(stream.version + 1))
    written = drive(Stream.write(stream, event, properties={"Total": total + number})).stream
    print(partition.key, written.version, flush=True)
"""
KILLS = 12


@contextmanager
def opened(url):
    store = connect(url)
    yield drive(store.table("games"))
    drive(store.close())


def rows_of(table, key):
    page = drive(table.query(key, "", "~"))
    rows = list(page.rows)
    while page.continuation is not None:
        page = drive(table.query(key, "", "~", continuation=page.continuation))
        rows += page.rows
    return {row.row_key: row.properties for row in rows}


@pytest.fixture
def partition(table):
    partition = Partition(table, "p")
    drive(Stream.write(partition, EventData({"N": 1}), properties={"Total": 1}, expected_version=0))
    return partition


@pytest.mark.parametrize("last", range(OPERATIONS))
def test_nothing_of_an_open_transaction_is_there_and_who_waits_goes_on(start, path, url, partition, last):
    # Given one who is stopped in its transaction, and another who waits to begin one
    before, log = rows_of(partition.table, "p"), path.with_name("store.db-wal")
    length = log.stat().st_size
    victim = start(HALTS_IN_A_TRANSACTION, url, last)
    assert victim.line() == "halted"
    assert log.stat().st_size > length or last == 0
    waiting = start(SAYS_ITS_STATEMENTS, url)
    assert waiting.line() == "BEGIN IMMEDIATE"
    assert rows_of(partition.table, "p") == before  # a read does not wait for the open transaction

    # When the first is killed
    victim.kill()

    # Then the other has its turn, and finds all as it was before
    assert waiting.end()[-1] == "COMMIT"
    assert rows_of(partition.table, "p") == {
        **before,
        "SS-HEAD": {"Version": 2, "Total": 8},
        "SS-SE-0000000002": {"Version": 2, "N": 7},
    }


@pytest.mark.parametrize("someone_has_it_open", [True, False])
def test_one_who_comes_afterwards_does_not_wait(start, url, partition, monkeypatch, someone_has_it_open):
    victim = start(HALTS_IN_A_TRANSACTION, url, 2)
    assert victim.line() == "halted"
    if not someone_has_it_open:
        drive(partition.table._store.close())

    victim.kill()

    monkeypatch.setattr(sqlite_file, "BUSY_SECONDS", 0)
    with opened(url) as table:
        stream = drive(Stream.open(Partition(table, "p")))
        assert drive(Stream.write(stream, EventData({"N": 2}, id="second"))).stream.version == 2
        assert drive(table.get("p", "list")) is None


def test_all_that_was_acknowledged_is_there_whenever_the_writer_dies(start, url, path):
    random = Random(7)
    acknowledged = {"a": 0, "b": 0, "c": 0}
    for kill in range(1, KILLS + 1):
        writer = start(WRITES_ON_AND_ON, url, kill)
        said = [writer.line() for _ in range(random.randrange(1, 40))]
        for line in said + writer.kill():
            key, version = line.split()
            assert int(version) > acknowledged[key]
            acknowledged[key] = int(version)

        with opened(url) as table:
            versions = {key: check_stream(table, key) for key in acknowledged}

        assert all(versions[key] >= acknowledged[key] for key in acknowledged)
        # Of each life at most its last transaction was written and not acknowledged.
        assert sum(versions.values()) <= sum(acknowledged.values()) + 1
        acknowledged = versions

    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()


def check_stream(table, key):
    """Check that a stream agrees with itself, and return its version."""
    found = drive(Stream.try_read(Partition(table, key)))
    rows = rows_of(table, key)
    if found is None:
        assert not rows
        return 0
    versions = list(range(1, found.stream.version + 1))
    assert [event.version for event in found.events] == versions
    assert found.stream.properties == {"Total": sum(numbers(found.events))}
    assert set(rows) == {
        "SS-HEAD",
        *(f"SS-SE-{version:010d}" for version in versions),
        *(f"SS-UID-{version}" for version in versions),
    }
    return found.stream.version


def numbers(events):
    return [event.properties["N"] for event in events]
