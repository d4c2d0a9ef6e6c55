"""A read sees what one transaction left, never a part of the next one, and waits for no writer."""

from __future__ import annotations

import pytest

from eventstore import EventData, Partition, Stream, Value, drive

READERS, STEPS, WRITES_IN_A_STEP = 2, 12, 75

WRITES_STEP_BY_STEP = """
import sys
from eventstore import EventData, Partition, Stream, connect, drive

url, writes = sys.argv[1], int(sys.argv[2])
stream = drive(Stream.open(Partition(drive(connect(url).table("games")), "p")))
for line in sys.stdin:
    for _ in range(writes):
        version = stream.version + 1
        own = {"Total": stream.properties["Total"] + version, "Large": bytes([version % 256]) * 9000}
        stream = drive(Stream.write(stream, EventData({"N": version}), properties=own)).stream
    print(stream.version, flush=True)
"""

READS_ON_AND_ON = """
import sys
from eventstore import Partition, Stream, connect, drive

url, last = sys.argv[1], int(sys.argv[2])
partition = Partition(drive(connect(url).table("games")), "p")
selections = {}, {"select": ["N"], "header": ["Total", "Large"]}
seen = reads = 0
while seen < last:
    found = drive(Stream.read(partition, slice_size=None, **selections[reads % 2]))
    version, own = found.stream.version, found.stream.properties
    assert version >= seen, (version, seen)
    assert [event.version for event in found.events] == list(range(1, version + 1))
    assert own["Total"] == sum(event.properties["N"] for event in found.events), (version, own["Total"])
    assert own["Large"] == bytes([version % 256]) * 9000, (version, set(own["Large"]))
    reads += 1
    if version > seen:
        seen = version
        print(seen, flush=True)
"""

STOPS_IN_A_TRANSACTION = """
import sys
from eventstore import EventData, Partition, Stream, connect, drive
from eventstore.backends.sqlite import Changes

change = Changes._change

def change_and_stop(changes, index, *operation):
    etag = change(changes, index, *operation)
    print("stopped", flush=True)
    sys.stdin.readline()
    return etag

store = connect(sys.argv[1])
stream = drive(Stream.open(Partition(drive(store.table("games")), "p")))
# What it changes is written before it commits, as in a transaction that is larger than the cache.
store._file.connection().execute("PRAGMA cache_size=1")
Changes._change = change_and_stop
event = EventData({"N": 2, "Data": bytes(60_000)})
drive(Stream.write(stream, event, properties={"Total": 3, "Large": bytes([2]) * 60_000}))
"""

READS_WITHOUT_WAITING = """
import sys
from eventstore import Partition, Stream, connect, drive
from eventstore.backends import sqlite as sqlite_file

sqlite_file.BUSY_SECONDS = 0
table = drive(connect(sys.argv[1]).table("games"))
whole = drive(Stream.read(Partition(table, "p")))
part = drive(Stream.read(Partition(table, "p"), select=["N"], header=["Total", "Large"]))
heads = drive(table.scan("SS-HEAD")).rows
assert whole.stream.properties == part.stream.properties
assert heads[0].properties["Version"] == whole.stream.version == part.stream.version
print(whole.stream.version, whole.stream.properties["Total"])
"""


@pytest.fixture
def partition(table):
    partition = Partition(table, "p")
    own: dict[str, Value] = {"Total": 1, "Large": bytes([1]) * 9000}
    drive(Stream.write(partition, EventData({"N": 1}), properties=own, expected_version=0))
    return partition


def test_each_read_agrees_with_itself_and_versions_never_go_back(start, url, partition):
    last = 1 + STEPS * WRITES_IN_A_STEP
    readers = [start(READS_ON_AND_ON, url, last) for _ in range(READERS)]
    writer = start(WRITES_STEP_BY_STEP, url, WRITES_IN_A_STEP)
    for step in range(1, STEPS + 1):
        writer.tell("go")
        written = 1 + step * WRITES_IN_A_STEP
        # The readers keep up, however slow they are: each sees every step at the least.
        for reader in readers:
            while int(reader.line()) < written:
                pass
        assert writer.line() == str(written)

    assert writer.end() == []
    for reader in readers:
        assert reader.end() == []


def test_a_read_does_not_wait_for_an_open_transaction(start, url, partition):
    writer = start(STOPS_IN_A_TRANSACTION, url)
    for _header_and_event in range(2):
        assert writer.line() == "stopped"
        assert start(READS_WITHOUT_WAITING, url).end() == ["1 1"]
        writer.tell("go on")

    writer.end()
    assert start(READS_WITHOUT_WAITING, url).end() == ["2 3"]
