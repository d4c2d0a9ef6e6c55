"""Versions as a table: a row for each version that is kept, or only what batches have changed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from eventstore import PAGE_SIZE, KeyRange, Table
from runtime.errors import StoredDataError
from runtime.storage.run import DATA_PROPERTIES
from runtime.tables.change_feed import ChangeFeed
from runtime.tables.columns import MAX_BYTES, Buffer, Columns, chosen
from runtime.tables.decoding import COLUMNS, MAKERS, STATES, Decoded
from runtime.tables.models import StateColumns, as_json
from runtime.tables.outputs import TYPE, Outputs
from runtime.tables.streams import Part, StreamHead, parts_in, parts_of
from runtime.tables.wanted import ALL, Wanted, heads_of

_OUTPUTS = "outputs"


def columns_of_versions(
    model: StateColumns = as_json, feed: ChangeFeed | None = None, outputs: Outputs | None = None
) -> Columns:
    """Return all columns of versions, or of a change feed."""
    columns = {name: model.type if name in STATES else each.type for name, each in COLUMNS.items()}
    if outputs is not None:
        columns[_OUTPUTS] = TYPE
    return columns if feed is None else feed.columns(columns)


async def versions(
    table: Table,
    wanted: Wanted,
    keys: KeyRange = ALL,
    *,
    feed: ChangeFeed | None = None,
    model: StateColumns = as_json,
    outputs: Outputs | None = None,
) -> AsyncIterator[pa.RecordBatch]:
    """Give the versions of the streams in a range.

    Costs a request for each 1,000 rows or 4 MiB of what is asked for; of a single stream, one for each 1,000 runs.
    With a time, only streams that were changed since are read: a request for each 1,000 headers, and what `parts_of`
    says for those whose tail does not reach back to it.
    """
    columns = chosen(columns_of_versions(model, feed, outputs), wanted.columns)
    reader = _Reader(columns, wanted, feed, model, outputs)
    async for part in _parts(table, wanted, keys, reader.select):
        for batch in reader.add(part):
            yield batch
    if reader.buffer.rows:
        yield reader.buffer.take()


async def _parts(table: Table, wanted: Wanted, keys: KeyRange, select: Sequence[str]) -> AsyncIterator[Part]:
    if wanted.keys is not None:
        source = parts_of(table, wanted.keys, select)
    elif wanted.since is None and wanted.business_id is None:
        source = parts_in(table, wanted.within(keys), select)
    else:
        source = _parts_since(table, wanted, keys, select)
    async for part in source:
        yield part


async def _parts_since(
    table: Table, wanted: Wanted, keys: KeyRange, select: Sequence[str]
) -> AsyncIterator[Part]:
    in_runs: list[str] = []
    async for stream in heads_of(table, wanted, keys):
        if wanted.since is not None and stream.head.last_now < wanted.since:
            continue
        if _is_in_tail(stream, wanted.since):
            yield Part(stream, None)
        elif stream.newest_event:
            in_runs.append(stream.key)
        if len(in_runs) == PAGE_SIZE:
            async for part in parts_of(table, in_runs, select):
                yield part
            in_runs = []
    if in_runs:
        async for part in parts_of(table, in_runs, select):
            yield part


def _is_in_tail(stream: StreamHead, since: int | None) -> bool:
    """Say whether all versions of a stream that were made since a time are in its tail."""
    tail = stream.head.tail
    if tail is None:
        return False
    return not stream.newest_event or (since is not None and tail.run().versions.nows[0] < since)


class _Reader:
    """Collects the rows that are asked for of one part after another."""

    def __init__(
        self,
        columns: Columns,
        wanted: Wanted,
        feed: ChangeFeed | None,
        model: StateColumns,
        outputs: Outputs | None,
    ) -> None:
        self.buffer = Buffer(columns, MAKERS)
        self._columns = columns
        self._wanted = wanted
        self._feed = feed
        self._model = model
        self._outputs = outputs if _OUTPUTS in columns else None
        self._states = len(STATES & set(columns))
        self._values = {name: COLUMNS[name].values for name in columns if name in COLUMNS}
        self._whole = DATA_PROPERTIES[0] in self.select
        self._key: str | None = None

    @property
    def select(self) -> Sequence[str]:
        """The properties that tell the columns and whether a version is asked for."""
        needed = [COLUMNS[name].needs for name in self._columns if name in COLUMNS]
        if self._has_time or self._feed is not None or self._outputs is not None:
            needed.append(COLUMNS["now"].needs)
        return list(dict.fromkeys(name for names in (COLUMNS["version"].needs, *needed) for name in names))

    @property
    def _has_time(self) -> bool:
        return self._wanted.since is not None or self._wanted.until is not None

    def add(self, part: Part) -> Iterator[pa.RecordBatch]:
        """Add the versions of a part, and give what is full."""
        some = Decoded(part, self._model, whole=self._whole)
        is_first, self._key = part.stream.key != self._key, part.stream.key
        try:
            if is_first and self._feed is not None:
                yield from self._put_snapshot(some, self._feed.snapshot(some))
            yield from self._put_each(some, self._positions(some))
        except StoredDataError as error:
            raise StoredDataError(f"The stream {part.stream.key} cannot be read: {error}") from error

    def _positions(self, some: Decoded) -> Sequence[int]:
        positions: Sequence[int] = range(some.count)
        if self._has_time:
            nows = some.run.versions.nows
            positions = [position for position in positions if self._wanted.has(nows[position])]
        return positions if self._feed is None else self._feed.positions(some, positions)

    def _put_snapshot(self, some: Decoded, found: Mapping[str, Any] | None) -> Iterator[pa.RecordBatch]:
        if found is not None and not self._has_time:
            row = {name: [found.get(name)] for name in self._columns}
            yield from self._put(row, 1, len(some.run.before))

    def _put_each(self, some: Decoded, positions: Sequence[int]) -> Iterator[pa.RecordBatch]:
        if not positions:
            return
        values = {name: values_of(some) for name, values_of in self._values.items()}
        if self._feed is not None:
            values["change_type"] = self._feed.kinds(some)
        if self._outputs is not None:
            values[_OUTPUTS] = self._outputs.of(some)
        if len(positions) < some.count:
            values = {name: [each[position] for position in positions] for name, each in values.items()}
        largest = self._states * some.largest_state if self._states else 0
        yield from self._put(values, len(positions), largest)

    def _put(self, values: Mapping[str, Sequence[Any]], count: int, largest: int) -> Iterator[pa.RecordBatch]:
        """Add rows whose states take at most so many bytes each."""
        step = max(1, MAX_BYTES // largest) if largest else max(1, count)
        for start in range(0, count, step):
            end = min(start + step, count)
            some = values if step >= count else {name: each[start:end] for name, each in values.items()}
            self.buffer.add(some, end - start, (end - start) * largest)
            if self.buffer.is_full:
                yield self.buffer.take()
