"""Finding the rows of events that are cut away."""

from __future__ import annotations

from eventstore.events import VERSION
from eventstore.partition import EVENT_ID, Partition
from eventstore.reading import read_rows


async def rows_below(partition: Partition, version: int) -> list[str]:
    """Return the keys of the events before a version, and of their ids. Properties are not read.

    Leftovers of an earlier truncation are among them. Two requests, and one more for each 1,000 rows.
    """
    events = await read_rows(partition, partition.event(1), partition.event(version - 1), ())
    row_keys = [row.row_key for row in events.rows if partition.version_of(row.row_key) is not None]
    # A full stop is the character after the hyphen: the end of all keys that begin with the prefix of ids.
    first = partition.prefix + EVENT_ID
    ids = await read_rows(partition, first, first[:-1] + ".", (VERSION,))
    for row in ids.rows:
        version_of_event = row.properties.get(VERSION)
        if row.row_key.startswith(first) and isinstance(version_of_event, int) and version_of_event < version:
            row_keys.append(row.row_key)
    return row_keys
