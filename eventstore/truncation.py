"""Cutting events away: the oldest ones, or a whole stream.

The first transaction changes the header so that the events count as gone, and only then, or with it, rows are
deleted. After a crash the stream is right, and doing the same again deletes what is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from eventstore.errors import PayloadTooLargeError, StreamNotFoundError
from eventstore.header import header_row, is_tombstone, tombstone_row, versions_of
from eventstore.includes import Include
from eventstore.limits import MAX_OPERATIONS, prepare, row_bytes
from eventstore.partition import Partition
from eventstore.port import Operation, Properties, Value
from eventstore.properties import FIRST_VERSION
from eventstore.reading import read_ids, read_rows, with_watermark
from eventstore.stream_value import StreamT, StreamValue
from eventstore.writing import transact

_CHANGES = MAX_OPERATIONS - 1
_MEASURED_AT_ONCE = 64
"""Rows that are read to be measured: each may have a megabyte."""


@dataclass(frozen=True, slots=True)
class CutRows:
    """The rows that a truncation deletes, and how many bytes they take (`eventstore.limits.row_bytes`)."""

    row_keys: Sequence[str]
    bytes: int


async def rows_to_cut(stream: StreamValue, first_version: int) -> CutRows:
    """Read the rows that a truncation up to a version deletes, leftovers of an earlier one among them.

    They are read whole, some at a time. Two requests, and one more for each further 64 events.
    """
    partition, last = stream.partition, first_version - 1
    row_keys, size = [], 0
    first, end = 1, min(last, stream.first_version + _MEASURED_AT_ONCE - 1)
    while True:
        events = await read_rows(partition, partition.event(first), partition.event(end), None)
        found = [row for row in events.rows if partition.version_of(row.row_key) is not None]
        row_keys += [row.row_key for row in found]
        size += sum(map(row_bytes, found))
        if end >= last:
            break
        first, end = end + 1, min(last, end + _MEASURED_AT_ONCE)
    return CutRows(row_keys + await _ids_below(partition, first_version), size)


async def truncate(
    stream: StreamT,
    first_version: int,
    properties: Properties | None,
    includes: Sequence[Include],
    rows: CutRows | None = None,
) -> StreamT:
    """Cut away the events before a version, and return the stream as it is then.

    `rows` are those to delete, if they have been read.
    """
    partition, etag = stream.partition, stream.etag
    if etag is None:
        raise ValueError("The stream is transient: it has nothing to cut away.")
    mark: dict[str, Value] = {FIRST_VERSION: first_version}
    if properties is None:
        header = Operation.merge(partition.header, mark, etag)
    else:
        row = header_row(stream.version, first_version, properties)
        header = Operation.replace(partition.header, row, etag)
    included = [include.operation() for include in includes]
    prepare(partition.key, [header, *included])
    stream = await with_watermark(stream)
    if not stream.first_version <= first_version <= stream.version + 1:
        raise ValueError(
            f"The stream's events {stream.first_version} to {stream.version} cannot be cut up to {first_version}."
        )
    doomed = await _rows_below(partition, first_version) if rows is None else rows.row_keys
    if not doomed and not includes and properties is None and first_version == stream.first_version:
        return stream
    if properties is not None:
        stream = replace(stream, properties=properties, partial=False)
    etag = await _delete(partition, header, mark, doomed, included)
    return replace(stream, etag=etag, first_version=first_version)


async def delete(target: StreamValue) -> None:
    """Replace the header by a tombstone, and delete all events and ids.

    A transient value stands for the stream as it is now, also one whose deletion was broken off.
    """
    partition, etag, version, was_deleted = target.partition, target.etag, target.version, False
    if etag is None:
        row = await partition.table.get(partition.key, partition.header)
        if row is None:
            raise StreamNotFoundError(str(partition))
        etag, version, was_deleted = row.etag, versions_of(row)[0], is_tombstone(row)
    doomed = await _rows_below(partition, version + 1)
    if doomed or not was_deleted:
        tombstone = tombstone_row(version)
        await _delete(partition, Operation.replace(partition.header, tombstone, etag), tombstone, doomed)


async def _delete(
    partition: Partition,
    header: Operation,
    mark: dict[str, Value],
    doomed: Sequence[str],
    included: Sequence[Operation] = (),
) -> str:
    """Change the header and delete rows, 99 with each transaction; return the header's last ETag.

    What is included is all in the first transaction, and rows are deleted with it as far as there is room.
    """
    deletions = [Operation.delete(row_key) for row_key in doomed]
    room = _CHANGES - len(included)
    if included and not _fit(partition, [header, *included, *deletions[:room]]):
        room = 0
    (etag, *_) = await transact(partition, [header, *included, *deletions[:room]])
    for start in range(room, len(deletions), _CHANGES):
        header = Operation.merge(partition.header, mark, etag)
        (etag, *_) = await transact(partition, [header, *deletions[start : start + _CHANGES]])
    return etag


def _fit(partition: Partition, operations: Sequence[Operation]) -> bool:
    """Return whether operations, each of which is right by itself, fit into one transaction."""
    try:
        prepare(partition.key, operations)
    except PayloadTooLargeError:
        return False
    return True


async def _rows_below(partition: Partition, version: int) -> list[str]:
    """Return the keys of the events before a version, and of their ids. Properties are not read.

    Leftovers of an earlier truncation are among them. Two requests, and one more for each 1,000 rows.
    """
    events = await read_rows(partition, partition.event(1), partition.event(version - 1), ())
    row_keys = [row.row_key for row in events.rows if partition.version_of(row.row_key) is not None]
    return row_keys + await _ids_below(partition, version)


async def _ids_below(partition: Partition, version: int) -> list[str]:
    ids = await read_ids(partition)
    return [partition.event_id(event_id) for of_event, event_id in ids if of_event < version]
