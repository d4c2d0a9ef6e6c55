"""Looking at state streams: which there are, and what one of them holds."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from eventstore import PAGE_SIZE, KeyRange, Partition, Row, Stream, Table
from eventstore.header import is_tombstone
from eventstore.listing import read_headers
from eventstore.reading import Selection, stream_read
from runtime.storage.damage import one_of_many, placed
from runtime.storage.head import HEAD_PROPERTIES, Head, is_of_state, read_head
from runtime.storage.run import read_run
from runtime.storage.stream import stream_partition
from runtime.storage.version import RunVersions, Version


@dataclass(frozen=True, slots=True)
class StreamSummary:
    """A stream as its header describes it."""

    handler: str
    business_id: str
    head: Head
    runs: int

    @property
    def key(self) -> str:
        """The partition key of the stream."""
        return f"{self.handler}-{self.business_id}"


async def summaries(
    table: Table, handler: str | None = None, prefix: str = ""
) -> AsyncIterator[StreamSummary]:
    """Give the streams of a table in the order of their keys, of one handler or all.

    `prefix` is what their business ids begin with; without a handler, all headers are read for it.
    One request for each 1,000 streams. One that is damaged is left out where damage is collected.
    """
    keys = KeyRange(f"{handler}-{prefix}") if handler else KeyRange()
    async for stream in state_streams(table, keys, HEAD_PROPERTIES):
        summary = None
        with one_of_many(table, stream.partition.key):
            summary = _summary(stream)
        if summary is not None and summary.business_id.startswith(prefix):
            yield summary


async def state_streams(table: Table, keys: KeyRange, header: Sequence[str]) -> AsyncIterator[Stream]:
    """Give the state streams in a range of keys, with these properties. One request for each 1,000.

    One whose header cannot be read is left out where damage is collected.
    """
    selection = Selection.of((), [*header, "StateVersions", "StateSchema"])
    async for row in read_headers(table, keys, selection.query):
        stream = None
        if _is_of_state(row):
            with one_of_many(table, row.partition_key):
                stream = stream_read(Stream(Partition.exact(table, row.partition_key)), row, selection)
        if stream is not None:
            yield stream


async def stream_keys(table: Table, keys: KeyRange) -> AsyncIterator[list[str]]:
    """Give the partition keys of the state streams in a range, up to 1,000 at a time, with one request for each."""
    found: list[str] = []
    selection = Selection.of((), ["StateVersions", "StateSchema"])
    async for row in read_headers(table, keys, selection.query):
        if _is_of_state(row):
            found.append(row.partition_key)
        if len(found) == PAGE_SIZE:
            yield found
            found = []
    if found:
        yield found


async def versions(table: Table, handler: str, business_id: str) -> list[Version] | None:
    """Return all versions of a stream that are kept, the oldest first; None when there is no stream.

    One request for each 1,000 runs.
    """
    partition = stream_partition(table, handler, business_id)
    with placed(table, partition.key):
        slice_ = await Stream.try_read(partition, slice_size=None)
        if slice_ is None:
            return None
        tail = read_head(slice_.stream.properties or {}).tail
        runs = [read_run(event) for event in slice_.events]
        if tail is not None:
            runs.append(tail.run())
        return [version for run in runs for version in RunVersions(run)]


def _summary(stream: Stream) -> StreamSummary:
    handler, _, business_id = stream.partition.key.partition("-")
    head = read_head(stream.properties or {})
    runs = stream.version - stream.first_version + 1 + (head.tail is not None)
    return StreamSummary(handler, business_id, head, runs)


def is_state_stream(stream: Stream) -> bool:
    """Say whether a stream holds versions of a state, by the properties of its header."""
    return "-" in stream.partition.key and is_of_state(stream.properties or {})


def _is_of_state(row: Row) -> bool:
    """Say whether a header is that of a stream of states, even of one that was damaged."""
    return "-" in row.partition_key and is_of_state(row.properties) and not is_tombstone(row)
