"""What must be true of the index of a stream."""

from itertools import pairwise

from eventstore import Partition, Stream, Table, drive
from eventstore.port import Row
from runtime.versions.head import read_head
from runtime.versions.index import PREFIX, IndexRow, id_hashes_of, read_index_row
from runtime.versions.limits import HASH_BYTES
from runtime.versions.run import read_run
from tests.unit.runtime.diary import DIARY
from tests.unit.runtime.tables import rows


def index_of(table: Table, key: str = f"Diary-{DIARY}") -> list[IndexRow]:
    found = sorted(
        (row_key, values) for (partition, row_key), values in rows(table).items() if partition == key
    )
    return [
        read_index_row(Row(key, row_key, "", values))
        for row_key, values in found
        if row_key.startswith(PREFIX)
    ]


def check_index(table: Table, key: str = f"Diary-{DIARY}") -> None:
    """Check that the index names all versions of all runs that are kept, once, each where it is."""
    slice_ = drive(Stream.try_read(Partition.exact(table, key)))
    if slice_ is None:
        return
    head = read_head(slice_.stream.properties or {})
    index = index_of(table, key)
    runs = {event.version: read_run(event) for event in slice_.events}
    for before, after in pairwise(index):
        assert (after.first, after.first_event) == (before.last + 1, before.first_event + len(before.ends))
    in_runs = head.versions - (head.tail.count if head.tail else 0)
    if in_runs >= head.kept_from:
        assert index[0].first <= head.kept_from
        assert index[-1].last == in_runs
    assert all(row.last >= head.kept_from for row in index)
    for row in index:
        assert list(row.ends) == sorted(set(row.ends))
        for number, (start, end) in enumerate(zip([0, *row.ends], row.ends, strict=False)):
            run = runs.get(row.first_event + number)
            if run is not None:
                assert (run.first, run.last) == (row.first + start, row.first + end - 1)
                hashes = row.id_hashes[start * HASH_BYTES : end * HASH_BYTES]
                assert hashes == id_hashes_of(run.ids, row.key)
