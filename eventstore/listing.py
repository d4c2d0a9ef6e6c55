"""Listing the streams of a table, all of them or those whose keys begin with a prefix, whole or range by range.

Streams of virtual partitions are not listed: they have no row that could be asked for by one row key.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from eventstore.header import HEADER_NAMES, is_header
from eventstore.keys import PLAIN_CHARACTERS, escape
from eventstore.partition import HEADER, Partition
from eventstore.port import Row, Table, pages
from eventstore.reading import EVERYTHING, Selection, stream_read
from eventstore.stream import Stream

_SAMPLES_OF_A_PART = 64
_MOST_SAMPLES = 8192


@dataclass(frozen=True, slots=True)
class KeyRange:
    """The partition keys that begin with `prefix`, from `first` on and before `before`; "" and None leave an end open.

    Of the ranges that `split_streams` gives, each key with the prefix is in exactly one, also a key that is new.
    """

    prefix: str = ""
    first: str = ""
    before: str | None = None


async def list_streams(
    table: Table, keys: KeyRange | str = "", *, header: Sequence[str] | None = None
) -> AsyncIterator[Stream]:
    """Yield the streams of a table, those of a range or with a prefix, in the order of their keys.

    Cosmos DB gives them in any order.

    `header` names the stream properties to read, None for all. Deleted streams are left out; one that is made or
    deleted meanwhile is listed or not. One request for each 1,000 streams.
    """
    selection = EVERYTHING if header is None else Selection.of((), header)
    keys = KeyRange(keys) if isinstance(keys, str) else keys
    async for row in read_headers(table, keys, selection.query):
        if is_header(row):
            yield stream_read(Stream(Partition.exact(table, row.partition_key)), row, selection)


async def split_streams(table: Table, parts: int, prefix: str = "") -> list[KeyRange]:
    """Split the streams with a prefix into at most so many ranges, about equal in number, to be listed apart.

    Reads all keys with that prefix, and no properties: one request for each 1,000 streams.
    """
    return await split_keys(_stream_keys(table, prefix), parts, prefix)


async def split_keys(keys: AsyncIterable[str], parts: int, prefix: str = "") -> list[KeyRange]:
    """Split partition keys with a prefix, in any order, into at most so many ranges, about equal in number.

    Holds a sample of the keys: 64 for each range.
    """
    if parts < 1:
        raise ValueError(f"Streams are split into at least one range, not into {parts}.")
    return (await _sampled(keys, parts * _SAMPLES_OF_A_PART)).ranges(prefix, parts)


async def count_and_split(table: Table, parts: int, most: int) -> tuple[int, list[KeyRange]]:
    """Return how many streams a table has, and ranges of about `most` of them, or `parts` if those are more.

    Of a table with very many streams, ranges have more of them: there are a few thousand ranges. The price is that of
    `split_streams`.
    """
    limit = max(parts * _SAMPLES_OF_A_PART, _MOST_SAMPLES)
    sample = await _sampled(_stream_keys(table, ""), limit)
    wanted = max(parts, -(-sample.added // most))
    return sample.added, sample.ranges("", min(wanted, sample.limit // 2))


async def _stream_keys(table: Table, prefix: str) -> AsyncIterator[str]:
    async for row in read_headers(table, KeyRange(prefix), HEADER_NAMES):
        if is_header(row):
            yield row.partition_key


async def _sampled(keys: AsyncIterable[str], limit: int) -> _Sample:
    sample = _Sample(limit)
    async for key in keys:
        sample.add(key)
    return sample


@dataclass(slots=True)
class _Sample:
    """Every second, fourth, eighth ... of the keys that were added, never more than an even number of them."""

    limit: int
    keys: list[str] = field(default_factory=list)
    added: int = 0
    _stride: int = 1

    def add(self, key: str) -> None:
        if len(self.keys) == self.limit:
            self.keys = self.keys[::2]
            self._stride *= 2
        if self.added % self._stride == 0:
            self.keys.append(key)
        self.added += 1

    def ranges(self, prefix: str, parts: int) -> list[KeyRange]:
        """Return at most so many ranges, each with about as many of the keys."""
        # Ranges are promised for ASCII keys only, and Cosmos DB gives keys in any order.
        keys = sorted((key for key in self.keys if key.isascii()), key=escape)
        places = {number * len(keys) // parts for number in range(1, parts)} - {0}
        bounds = [keys[place] for place in sorted(places)]
        return [
            KeyRange(prefix, first, before)
            for first, before in zip(["", *bounds], [*bounds, None], strict=True)
        ]


def read_headers(table: Table, keys: KeyRange, select: Sequence[str] | None) -> AsyncIterator[Row]:
    """Yield the rows with the key of a header, those of deleted streams among them. One request for each 1,000."""
    return read_range(table, HEADER, keys, select)


async def read_range(
    table: Table, row_key: str | None, keys: KeyRange, select: Sequence[str] | None = None
) -> AsyncIterator[Row]:
    """Yield the rows with this row key in a range of partitions, with None all rows. One request for each 1,000."""
    first = keys.first or keys.prefix
    last = _bound_after(keys.prefix) if keys.before is None else keys.before
    async for page in pages(partial(table.scan, row_key, first, last, select=select)):
        for row in page.rows:
            key = row.partition_key
            if key.startswith(keys.prefix) and key != keys.before:
                yield row


def _bound_after(prefix: str) -> str | None:
    """Return a key after all those with a prefix, whatever they hold behind it; None for the end of all keys."""
    for end in range(len(prefix), 0, -1):
        place = PLAIN_CHARACTERS.find(prefix[end - 1])
        if 0 <= place < len(PLAIN_CHARACTERS) - 1:
            return prefix[: end - 1] + PLAIN_CHARACTERS[place + 1]
    return None
