from __future__ import annotations

import subprocess
import sys

from eventstore import Stream, connect, drive
from eventstore.partition import Partition

PROCESSES, WRITES = 4, 25
PROGRAM = """
import sys
from eventstore import ConcurrencyConflictError, EventData, Partition, Stream, connect, drive

url, name, writes = sys.argv[1:]
store = connect(url)
partition = Partition(drive(store.table("games")), "p")
written = 0
while written < int(writes):
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
            [sys.executable, "-c", PROGRAM, url, f"worker-{number}", str(WRITES)], stderr=subprocess.PIPE, text=True
        )
        for number in range(PROCESSES)
    ]
    errors = [worker.communicate(timeout=120)[1] for worker in workers]
    assert errors == [""] * PROCESSES

    store = connect(url)
    found = drive(Stream.read(Partition(drive(store.table("games")), "p"), slice_size=None))
    drive(store.close())

    assert found.stream.properties == {"Total": PROCESSES * WRITES}
    assert [event.version for event in found.events] == list(range(1, PROCESSES * WRITES + 1))
    for number in range(PROCESSES):
        own = [event.properties["N"] for event in found.events if event.properties["By"] == f"worker-{number}"]
        assert own == list(range(WRITES))
