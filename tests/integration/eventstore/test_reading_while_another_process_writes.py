"""A read sees what one transaction left, never a part of the next one.

That it waits for no writer is seen where one is stopped and killed.
"""

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
