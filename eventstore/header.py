"""The header row of a stream: its version, its low watermark and its own properties."""

from __future__ import annotations

from collections.abc import Container, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from eventstore.events import RESERVED_NAMES, VERSION, own_copy
from eventstore.port import Operation, Properties, Row, Value

if TYPE_CHECKING:
    from eventstore.stream import Stream

FIRST_VERSION = "FirstVersion"
RESERVED_HEADER_NAMES = RESERVED_NAMES | {FIRST_VERSION}
HEADER_NAMES = (VERSION, FIRST_VERSION)


def stream_properties(properties: Mapping[str, Value | None]) -> Properties:
    """Return a copy of what a caller gives as a stream's properties. Raises `ValueError`."""
    return own_copy(properties, RESERVED_HEADER_NAMES)


def header_row(version: int, first_version: int, properties: Properties) -> dict[str, Value]:
    """Return the header's properties as stored; a watermark of 1 is left out."""
    row: dict[str, Value] = {VERSION: version}
    if first_version > 1:
        row[FIRST_VERSION] = first_version
    row.update(properties)
    return row


def header_operation(stream: Stream, version: int, own: Properties | None) -> Operation:
    """Return the header's part of a write to a stream; properties that are not known are kept."""
    row_key = stream.partition.header
    if own is None and not stream.partial:
        own = stream.properties
    if stream.etag is None:
        return Operation.insert(row_key, header_row(version, 1, own or {}))
    if own is None:
        return Operation.merge(row_key, {VERSION: version}, stream.etag)
    return Operation.replace(row_key, header_row(version, stream.first_version, own), stream.etag)


def versions_of(row: Row) -> tuple[int, int]:
    """Return the stream's version and its low watermark."""
    version, first_version = row.properties[VERSION], row.properties.get(FIRST_VERSION, 1)
    if not isinstance(version, int) or not isinstance(first_version, int):
        raise TypeError(
            f"The header {row.row_key!r} of {row.partition_key!r} has a version that is no number."
        )
    return version, first_version


def properties_of(row: Row, names: Container[str] | None = None) -> Properties:
    """Return the stream's own properties, all of them or those named."""
    return MappingProxyType(
        {
            name: value
            for name, value in row.properties.items()
            if name not in HEADER_NAMES and (names is None or name in names)
        }
    )
