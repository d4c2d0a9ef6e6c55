from __future__ import annotations

import subprocess
import sys

from eventstore import Stream, connect, drive
from eventstore.header import Partition

PROCESSES, WRITES = 4, 150
PROGRAM = """
import sys
from eventstore import ConcurrencyConflictError, EventData, Operation, Partition, Stream, connect, drive

url, name, writes = sys.argv[1:]
print("ready", flush=True)
sys.stdin.readline()
store = connect(url)
table = drive(store.table("games"))
partition = Partition(table, "p")
written = 0
while written < int(writes):
    drive(table.transact("shared", [Operation.insert_or_merge("row", {name: written})]))
    found = drive(Stream.try_read(partition, slice_size=1))
    stream = found.stream if found else Stream(partition)
    try:
        total = stream.properties["Total"] if found else 0
        drive(Stream.write(stream, EventData({"By": name, "N": written}), properties={"Total": total + 1}))
        written += 1
    except ConcurrencyConflictError:
        pass
drive(store.close())
"""


def test_processes_that_make_the_file_at_once_and_race_lose_no_event(tmp_path):
    url = f"sqlite:///{tmp_path}/store.db"
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, url, f"worker{number}", str(WRITES)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(PROCESSES)
    ]
    for worker in workers:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("go\n")
        worker.stdin.flush()
    errors = [worker.communicate(timeout=120)[1] for worker in workers]
    assert errors == [""] * PROCESSES

    store = connect(url)
    table = drive(store.table("games"))
    found = drive(Stream.read(Partition(table, "p"), slice_size=None))
    shared = drive(table.get("shared", "row"))
    drive(store.close())

    assert found.stream.properties == {"Total": PROCESSES * WRITES}
    assert [event.version for event in found.events] == list(range(1, PROCESSES * WRITES + 1))
    for number in range(PROCESSES):
        own = [event.properties["N"] for event in found.events if event.properties["By"] == f"worker{number}"]
        assert own == list(range(WRITES))
    assert shared is not None
    assert shared.properties == {f"worker{number}": WRITES - 1 for number in range(PROCESSES)}
