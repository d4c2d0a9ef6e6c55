"""Several processes that make one file and write the same streams at once: no event is lost or there twice."""

from __future__ import annotations

from eventstore import Partition, Stream, connect, drive

WRITERS, STREAMS, WRITES = 3, 8, 120

WRITES_TO_ALL_STREAMS = """
import sys
from random import Random
from eventstore import (
    ConcurrencyConflictError, DuplicateEventError, EventData, Operation, Partition, Stream, connect, drive
)

url, name, streams, writes = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
random = Random(name)

def append(key, event):
    while True:
        partition = Partition(table, key)
        stream = drive(Stream.try_open(partition)) or Stream(partition)
        total = stream.properties["Total"] if stream.version else 0
        try:
            return drive(Stream.write(stream, event, properties={"Total": total + event.properties["N"]}))
        except ConcurrencyConflictError:
            continue

print("ready", flush=True)
sys.stdin.readline()
table = drive(connect(url).table("games"))
for number in range(writes):
    key = f"stream-{random.randrange(streams)}"
    event = EventData({"By": name, "N": number}, id=f"{name}-{number}")
    append(key, event)
    drive(table.transact("shared", [Operation.insert_or_merge("row", {name: number})]))
    if number % 4 == 0:
        # As after a lost answer: the same once more.
        try:
            append(key, event)
        except DuplicateEventError:
            continue
        raise AssertionError(f"{event.id} was written twice")
"""


def test_each_event_is_written_once(start, url):
    writers = [
        start(WRITES_TO_ALL_STREAMS, url, f"writer{number}", STREAMS, WRITES) for number in range(WRITERS)
    ]
    for writer in writers:
        assert writer.line() == "ready"
    for writer in writers:
        writer.tell("go")
    for writer in writers:
        assert writer.end() == []

    store = connect(url)
    table = drive(store.table("games"))
    written: dict[str, list[int]] = {f"writer{number}": [] for number in range(WRITERS)}
    for number in range(STREAMS):
        found = drive(Stream.read(Partition(table, f"stream-{number}")))
        assert [event.version for event in found.events] == list(range(1, found.stream.version + 1))
        assert found.stream.properties == {"Total": sum(numbers(found.events))}
        for name, numbers_so_far in written.items():
            own = numbers(event for event in found.events if event.properties["By"] == name)
            assert own == sorted(own)
            numbers_so_far.extend(own)
    assert [sorted(each) for each in written.values()] == [list(range(WRITES))] * WRITERS
    shared = drive(table.get("shared", "row"))
    assert shared is not None
    assert shared.properties == dict.fromkeys(written, WRITES - 1)
    drive(store.close())


def numbers(events):
    return [event.properties["N"] for event in events]
