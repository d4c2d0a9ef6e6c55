"""The header row of a stream: its version, its low watermark, its tombstone and its own properties."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeGuard

from eventstore.errors import DamagedRowError
from eventstore.partition import MAX_VERSION
from eventstore.port import Operation, Properties, Row, Value
from eventstore.properties import FIRST_VERSION, NO_PROPERTIES, TOMBSTONE, VERSION
from eventstore.stream_value import StreamT, StreamValue

HEADER_NAMES = (VERSION, FIRST_VERSION, TOMBSTONE)


def header_row(version: int, first_version: int, properties: Properties) -> dict[str, Value]:
    """Return the header's properties as stored; a watermark of 1 is left out."""
    row: dict[str, Value] = {VERSION: version}
    if first_version > 1:
        row[FIRST_VERSION] = first_version
    row.update(properties)
    return row


def tombstone_row(version: int) -> dict[str, Value]:
    """Return what is stored in the header of a deleted stream: its last version, and that no event is kept."""
    return {VERSION: version, FIRST_VERSION: version + 1, TOMBSTONE: True}


def header_operation(
    stream: StreamValue, version: int, own: Properties | None, *, keep: bool = False
) -> Operation:
    """Return the header's part of a write to a stream, with its new properties if they are given.

    What is not known of the header is kept, and so is what is known to stand there already (`keep`). To replace the
    properties takes a value that knows its watermark.
    """
    row_key = stream.partition.header
    if stream.etag is None:
        return Operation.insert(row_key, header_row(version, 1, own or stream.properties or NO_PROPERTIES))
    if own is not None:
        return Operation.replace(row_key, header_row(version, stream.first_version, own), stream.etag)
    if keep or stream.partial or stream.properties is None:
        return Operation.merge(row_key, {VERSION: version}, stream.etag)
    row = header_row(version, stream.first_version, stream.properties)
    change = Operation.replace if stream.first_version else Operation.merge
    return change(row_key, row, stream.etag)


def stream_written(stream: StreamT, etag: str, version: int, own: Properties | None) -> StreamT:
    """Return the stream as it is after a write."""
    properties, partial = stream.properties, stream.partial
    if own is not None:
        properties, partial = own, False
    elif stream.etag is None and properties is None:
        properties = NO_PROPERTIES
    return replace(stream, etag=etag, version=version, properties=properties, partial=partial)


def is_header(row: Row) -> bool:
    """Return whether a row, read with a header's own names, is the header of a stream that was not deleted."""
    return isinstance(row.properties.get(VERSION), int) and not is_tombstone(row)


def is_tombstone(row: Row) -> bool:
    """Return whether a header, read with its own names, is that of a deleted stream."""
    return row.properties.get(TOMBSTONE) is True


def _is_count(value: Value | None) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_VERSION + 1


def versions_of(row: Row) -> tuple[int, int]:
    """Return the version and the low watermark in a header."""
    version, first_version = row.properties.get(VERSION), row.properties.get(FIRST_VERSION, 1)
    if not _is_count(version) or not _is_count(first_version):
        raise DamagedRowError(row.partition_key, row.row_key, "is no header: its version is no number")
    return version, first_version
