"""A write for which the system has no room: one clear error, nothing half done, and no harm once there is room.

The system refuses what would make a file larger than a limit of the process. SQLite's word for that is another than
for a full disk, of which the unit tests have a played one.
"""

from eventstore import Partition, Stream, connect, drive

WRITES_UNDER_A_LIMIT = """
import resource, sys
from contextlib import contextmanager
from pathlib import Path
from eventstore import EventData, EventStoreError, Partition, Stream, connect, drive

path = Path(sys.argv[1])
log = path.with_name(path.name + "-wal")
store = connect(f"sqlite:///{path}")

@contextmanager
def room(more, file=log):
    _, highest = resource.getrlimit(resource.RLIMIT_FSIZE)
    size = file.stat().st_size if file.exists() else 0
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + more, highest))
    try:
        yield
    except EventStoreError as error:
        print(type(error).__name__, error)
    else:
        print("done")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (highest, highest))

def append(size):
    partition = Partition(table, "p")
    stream = drive(Stream.try_open(partition)) or Stream(partition)
    event = EventData({"Data": bytes(size)}, id=f"event-{stream.version + 1}")
    return drive(Stream.write(stream, event, properties={"Size": size})).stream.version

"""

AN_OLD_FILE = """
with room(0):
    drive(store.table("games"))
table = drive(store.table("games"))
for _ in range(3):
    append(60_000)
with room(0):
    drive(table.barrier())
with room(0):
    drive(store.table("others"))
for more in 0, 10, 5_000, 40_000:
    with room(more):
        append(60_000)
with room(0):
    found = drive(Stream.read(Partition(table, "p")))
    assert (found.stream.version, len(found.events)) == (3, 3)
print(append(60_000))
"""

UNTIL_THERE_IS_NO_MORE = """
table = drive(store.table("games"))
# The log is emptied into the file again and again, so that either of them is the first to find no room.
store.connection().execute("PRAGMA wal_autocheckpoint=20")
for size in 100, 3_000:
    acknowledged = 0
    with room(150_000, path):
        while True:
            acknowledged = append(size)
    print(acknowledged)
print(append(60_000))
"""


def refusal(path):
    return (
        f"StoreUnavailableError The file {path} could not be written (disk I/O error): "
        "a quota or a limit on the size of files may be reached."
    )


def test_a_refused_write_leaves_nothing_and_reads_go_on(start, path, url):
    said = start(WRITES_UNDER_A_LIMIT + AN_OLD_FILE, path).end()

    assert said == [*[refusal(path)] * 7, "done", "4"]
    table = drive(connect(url).table("games"))
    assert versions(table) == [1, 2, 3, 4]
    ids = drive(table.query("p", "SS-UID-", "SS-UID-~")).rows
    assert [row.row_key for row in ids] == [f"SS-UID-event-{version}" for version in (1, 2, 3, 4)]


def test_what_was_acknowledged_before_the_disk_was_full_stays(start, path, table):
    said = start(WRITES_UNDER_A_LIMIT + UNTIL_THERE_IS_NO_MORE, path).end()

    first_refusal, first, second_refusal, second, last = said
    assert [first_refusal, second_refusal] == [refusal(path)] * 2
    assert 0 < int(first) < int(second)
    assert int(last) == int(second) + 1
    assert versions(table) == list(range(1, int(last) + 1))


def versions(table):
    found = drive(Stream.read(Partition(table, "p")))
    assert found.stream.version == len(found.events)
    return [event.version for event in found.events]
