"""Processes that commit several streams at once on one file, and are killed or overtaken in between."""

import json
from collections import defaultdict
from random import Random

import pytest

from eventstore import Operation, drive
from runtime.versions.stream import versions

HALTS_IN_A_COMMIT = """
import sys
from eventstore import Operation, connect, drive
from eventstore.backends.sqlite import Changes

url, last = sys.argv[1], int(sys.argv[2])
change = Changes._change
done = 0

def change_and_halt(changes, index, *operation):
    global done
    try:
        return change(changes, index, *operation)
    finally:
        if done == last:
            print("halted", flush=True)
            sys.stdin.read()
        done += 1

store = connect(url)
table = drive(store.table("games"))
# What it changes goes to the log before it commits, as in a transaction that is larger than the cache.
store.connection().execute("PRAGMA cache_size=1")
Changes._change = change_and_halt
head = Operation.replace("head", {"N": 2}), Operation.insert("event", {"Data": bytes(60_000)})
refused = Operation.replace("head", {"N": 2}), Operation.replace("absent", {})
drive(table.transact_each([("a", head), ("b", refused), ("c", head)]))
"""
OPERATIONS = 6

WRITES_AFTERWARDS = """
import sys
from eventstore import Operation, connect, drive

store = connect(sys.argv[1])
table = drive(store.table("games"))
store.connection().set_trace_callback(lambda statement: print(statement, flush=True))
drive(table.transact_each([(key, [Operation.replace("head", {"N": 3})]) for key in "abc"]))
"""

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
STREAMS, MESSAGES, KILLS = 20, 5, 2


@pytest.mark.parametrize("last", range(OPERATIONS))
def test_nothing_of_an_open_commit_is_there_and_who_waits_goes_on(start, url, table, last):
    # Given one who is stopped in a commit of three streams, and another who waits to begin one
    for key in "abc":
        drive(table.transact(key, [Operation.insert("head", {"N": 1})]))
    victim = start(HALTS_IN_A_COMMIT, url, last)
    assert victim.line() == "halted"
    waiting = start(WRITES_AFTERWARDS, url)
    assert waiting.line() == "BEGIN IMMEDIATE"
    assert contents(table) == {key: {"head": {"N": 1}} for key in "abc"}

    # When the first is killed
    victim.kill()

    # Then the other has its turn, and finds all as it was before
    assert waiting.end()[-1] == "COMMIT"
    assert contents(table) == {key: {"head": {"N": 3}} for key in "abc"}


def test_all_that_was_told_is_stored_whenever_the_worker_dies_and_the_next_one_finishes(
    start, url, table, chance: Random
):
    told: dict[str, dict[str, int]] = defaultdict(dict)
    for _ in range(KILLS):
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


def contents(table):
    return {
        key: {row.row_key: row.properties for row in drive(table.query(key, "", "~")).rows} for key in "abc"
    }
