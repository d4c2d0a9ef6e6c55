"""A process that is killed leaves its last transaction whole or not at all, and no lock behind."""

import json
import sqlite3
from collections import defaultdict
from contextlib import contextmanager
from functools import partial
from random import Random

import pytest

from eventstore import EventData, Operation, Partition, Stream, connect, drive, pages
from eventstore.backends import sqlite as sqlite_file
from runtime.versions.stream import versions
from tests.support.streams import collect

HALTS_IN_A_TRANSACTION = """
import sys
from eventstore import EventData, Include, Operation, Partition, Stream, connect, drive

url, kind, last = sys.argv[1], sys.argv[2], int(sys.argv[3])
store = connect(url)
table = drive(store.table("games"))
stream = drive(Stream.open(Partition(table, "p")))
# What it changes goes to the log before it commits, as in a transaction that is larger than the cache.
store.connection().execute("PRAGMA cache_size=1")
begun = 0

def halt(statement):
    global begun
    begun += statement.startswith(("SELECT r.id", "COMMIT"))  # an operation looks for its row first
    if begun == last + 2:
        print("halted", flush=True)
        sys.stdin.read()

store.connection().set_trace_callback(halt)
data = bytes(60_000)
if kind == "a write":
    events = EventData({"N": 2, "Data": data}, id="second"), EventData({"N": 3, "Data": data})
    drive(Stream.write(stream, *events, properties={"Total": 6}, includes=[Include.insert("list", {"N": 2})]))
else:
    change = Operation.replace("head", {"N": 2}), Operation.insert("event", {"Data": data})
    refused = Operation.replace("head", {"N": 2}), Operation.replace("absent", {})
    drive(table.transact_each([("a", change), ("b", refused), ("c", change)]))
"""
OPERATIONS = {"a write": 5, "a commit of three": 6}

WAITS_FOR_ITS_TURN = """
import sys
from eventstore import Operation, connect, drive

store = connect(sys.argv[1])
table = drive(store.table("games"))
store.connection().set_trace_callback(lambda statement: print(statement, flush=True))
drive(table.transact_each([(key, [Operation.insert_or_replace("head", {"N": 3})]) for key in "abc"]))
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

FOLDS = """
import json, sys
from benchmarks.games import by_game, routed_batches
from runtime.batch_options import BatchOptions
from runtime.ledger.batch import BatchContext
from runtime.spark.worker import outcomes
from runtime.spark.worker.job import FoldJob
from samples.shooting_range import app

url, streams, messages, first = sys.argv[1], *map(int, sys.argv[2:])
outcomes.MAX_ROWS = messages
games = [(first + number) % streams for number in range(streams)]
job = FoldJob(app, url, "games", BatchContext("night"), BatchOptions(in_flight=4))
print("ready", flush=True)
sys.stdin.readline()
for batch in job.fold(routed_batches(by_game(games, range(messages)))):
    for row in batch.to_pylist():
        print(json.dumps([row["business_id"], row["message_id"], row["status"], row["version"]]), flush=True)
"""
STREAMS, MESSAGES, WORKERS_KILLED = 20, 5, 2


@contextmanager
def opened(url):
    store = connect(url)
    yield drive(store.table("games"))
    drive(store.close())


def contents(table):
    """Return the properties of all rows, by their keys."""
    found = drive(collect(pages(partial(table.scan, None))))
    return {(row.partition_key, row.row_key): row.properties for page in found for row in page.rows}


@pytest.fixture
def partition(table):
    """Give a stream of one event, beside three partitions with a row."""
    for key in "abc":
        drive(table.transact(key, [Operation.insert("head", {"N": 1})]))
    partition = Partition(table, "p")
    drive(Stream.write(partition, EventData({"N": 1}), properties={"Total": 1}, expected_version=0))
    return partition


@pytest.mark.parametrize(
    ("kind", "last"), [(kind, last) for kind, number in OPERATIONS.items() for last in range(number)]
)
def test_nothing_of_an_open_transaction_is_there_and_who_waits_goes_on(
    start, path, url, partition, kind, last
):
    # Given one who is stopped in its transaction, and another who waits to begin one
    before, log = contents(partition.table), path.with_name("store.db-wal")
    length = log.stat().st_size
    victim = start(HALTS_IN_A_TRANSACTION, url, kind, last)
    assert victim.line() == "halted"
    assert log.stat().st_size > length or last == 0
    waiting = start(WAITS_FOR_ITS_TURN, url)
    assert waiting.line() == "BEGIN IMMEDIATE"
    assert contents(partition.table) == before  # a read does not wait for the open transaction

    # When the first is killed
    victim.kill()

    # Then the other has its turn, and finds all as it was before
    assert waiting.end()[-1] == "COMMIT"
    assert contents(partition.table) == {**before, **{(key, "head"): {"N": 3} for key in "abc"}}


@pytest.mark.parametrize("someone_has_it_open", [True, False])
def test_one_who_comes_afterwards_does_not_wait(start, url, partition, monkeypatch, someone_has_it_open):
    victim = start(HALTS_IN_A_TRANSACTION, url, "a write", 2)
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
    rows = {row for partition, row in contents(table) if partition == key}
    if found is None:
        assert not rows
        return 0
    versions = list(range(1, found.stream.version + 1))
    assert [event.version for event in found.events] == versions
    assert found.stream.properties == {
        "Total": sum(int(str(event.properties["N"])) for event in found.events)
    }
    assert rows == {
        "SS-HEAD",
        *(f"SS-SE-{version:010d}" for version in versions),
        *(f"SS-UID-{version}" for version in versions),
    }
    return found.stream.version


def test_all_that_was_told_is_stored_whenever_the_worker_dies_and_the_next_one_finishes(
    start, url, table, chance: Random
):
    told: dict[str, dict[str, int]] = defaultdict(dict)
    for _ in range(WORKERS_KILLED):
        worker = start(FOLDS, url, STREAMS, MESSAGES, 0)
        assert worker.line() == "ready"
        worker.tell("go")
        lines = [worker.line() for _ in range(chance.randrange(1, STREAMS * MESSAGES))]
        lines += worker.kill()
        take(told, lines)
        check(table, told)

    last = start(FOLDS, url, STREAMS, MESSAGES, 0)
    last.tell("go")
    take(told, last.end()[1:])

    check(table, told)
    assert sorted(map(len, told.values())) == [MESSAGES] * STREAMS


def test_two_workers_that_process_the_same_streams_at_once_agree(start, url, table):
    # The second begins in the middle, so that they meet.
    workers = [start(FOLDS, url, STREAMS, MESSAGES, first) for first in (0, STREAMS // 2)]
    for worker in workers:
        assert worker.line() == "ready"
    for worker in workers:
        worker.tell("go")

    told: dict[str, dict[str, int]] = defaultdict(dict)
    for worker in workers:
        lines = worker.end()
        assert len(lines) == STREAMS * MESSAGES
        take(told, lines)

    check(table, told)
    assert sorted(map(len, told.values())) == [MESSAGES] * STREAMS


def take(told, lines):
    """Take what a worker told: by stream, which message made which version. All tell the same."""
    for line in lines:
        business_id, message_id, status, version = json.loads(line)
        assert status == "processed"
        assert told[business_id].setdefault(message_id, version) == version


def check(table, told):
    """Check that what was told is stored, each message once."""
    for business_id, of_stream in told.items():
        stored = [each.message_id for each in drive(versions(table, "ShootingRange", business_id)) or ()]
        assert len(set(stored)) == len(stored)
        assert {stored[version - 1]: version for version in of_stream.values()} == of_stream
