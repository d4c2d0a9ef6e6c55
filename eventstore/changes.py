"""Following a table that has no change feed: which streams have changed since the last time, told by their headers.

Every change of a stream changes its header, and the store notes when. A pass reads all headers and gives the streams
that have changed; its position is where the next pass goes on.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import blake2b

from eventstore.header import HEADER_NAMES, is_header, is_tombstone, versions_of
from eventstore.listing import KeyRange, read_headers
from eventstore.partition import Partition
from eventstore.port import Row, Table
from eventstore.stream import Stream

_MARK_BYTES = 8


@dataclass(frozen=True, slots=True)
class Change:
    """A stream that has changed, as it is now, and when it changed last; None when the store does not know it.

    Of the stream's own properties none was read. It may have changed several times.
    """

    stream: Stream
    time: datetime | None
    is_deleted: bool


def changes(
    table: Table,
    after: str | None = None,
    *,
    keys: KeyRange | str = "",
    overlap: timedelta = timedelta(minutes=1),
) -> Changes:
    """Return a pass that gives the streams which have changed after a position, None for all streams.

        feed = changes(table, after=position)
        async for change in feed:
            ...
        position = feed.position

    At least once: a pass whose position was not kept is repeated by the next, and a stream that changes during a pass
    is given by it, by the next, or by both. `keys` are those of one of several readers, as in `list_streams`; a
    position belongs to its keys.

    Costs one request for each 1,000 streams of the table, changed or not, and the first pass twice that. Nothing is
    missed as long as the times that the store notes are right up to `overlap`: that is how far the clocks of its
    servers may differ, or that of a machine be set back.
    """
    return Changes(table, after, KeyRange(keys) if isinstance(keys, str) else keys, overlap)


class Changes:
    """One pass. `position` is where it began, and once it has given all, where the next one begins."""

    def __init__(self, table: Table, after: str | None, keys: KeyRange, overlap: timedelta) -> None:
        self.position = after
        self._table = table
        self._keys = keys
        self._overlap = overlap

    async def __aiter__(self) -> AsyncIterator[Change]:
        """Give the changes in the order of their keys; on Cosmos DB in any order."""
        began = (
            _Position(newest=await self._newest()) if self.position is None else _Position.read(self.position)
        )
        newest, marks = began.newest, set[bytes]()
        async for row in self._rows():
            newest = _later(newest, row.timestamp)
            mark = blake2b(f"{row.partition_key}\n{row.etag}".encode(), digest_size=_MARK_BYTES).digest()
            # What changes during this pass may be missed by it, and is not older than what was noted before it.
            if self._is_since(began.newest, row):
                marks.add(mark)
            if self._is_since(began.since, row) and mark not in began.marks:
                yield self._change(row)
        self.position = _Position(began.newest, newest, frozenset(marks)).text()

    async def _newest(self) -> datetime | None:
        newest = None
        async for row in self._rows():
            newest = _later(newest, row.timestamp)
        return newest

    async def _rows(self) -> AsyncIterator[Row]:
        async for row in read_headers(self._table, self._keys, HEADER_NAMES):
            if is_header(row) or is_tombstone(row):
                yield row

    def _is_since(self, time: datetime | None, row: Row) -> bool:
        return time is None or (row.timestamp is not None and row.timestamp >= time - self._overlap)

    def _change(self, row: Row) -> Change:
        version, first_version = versions_of(row)
        partition = Partition.exact(self._table, row.partition_key)
        stream = Stream(partition, row.etag, version, first_version)
        return Change(stream, row.timestamp, is_tombstone(row))


@dataclass(frozen=True, slots=True)
class _Position:
    """What changed since a time is given, but for headers with these marks. `newest` is the latest time seen so far."""

    since: datetime | None = None
    newest: datetime | None = None
    marks: frozenset[bytes] = frozenset()

    @classmethod
    def read(cls, text: str) -> _Position:
        """Return the position that a text stands for. Raises `ValueError`."""
        try:
            since, newest, marks = json.loads(text)
            found = b64decode(marks, validate=True)
            starts = range(0, len(found), _MARK_BYTES)
            each = frozenset(found[start : start + _MARK_BYTES] for start in starts)
            return cls(_time(since), _time(newest), each)
        except (ValueError, TypeError) as error:
            raise ValueError(f"No position of a pass over changes: {text[:60]!r}.") from error

    def text(self) -> str:
        """Return the position as text."""
        times = [time and time.isoformat() for time in (self.since, self.newest)]
        return json.dumps([*times, b64encode(b"".join(sorted(self.marks))).decode()])


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def _later(one: datetime | None, other: datetime | None) -> datetime | None:
    return max((time for time in (one, other) if time is not None), default=None)
