"""Looking at state streams: which there are, and what one of them holds."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

from eventstore import PAGE_SIZE, KeyRange, Stream, Table, list_streams
from runtime.storage.head import HEAD_PROPERTIES, Head, read_head
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
    One request for each 1,000 streams.
    """
    keys = KeyRange(f"{handler}-{prefix}") if handler else KeyRange()
    async for stream in list_streams(table, keys, header=HEAD_PROPERTIES):
        summary = _summary(stream)
        if summary is not None and summary.business_id.startswith(prefix):
            yield summary


async def stream_keys(table: Table, keys: KeyRange) -> AsyncIterator[list[str]]:
    """Give the partition keys of the state streams in a range, up to 1,000 at a time, with one request for each."""
    found: list[str] = []
    async for stream in list_streams(table, keys, header=["StateVersions"]):
        if is_state_stream(stream):
            found.append(stream.partition.key)
        if len(found) == PAGE_SIZE:
            yield found
            found = []
    if found:
        yield found


async def versions(table: Table, handler: str, business_id: str) -> list[Version] | None:
    """Return all versions of a stream that are kept, the oldest first; None when there is no stream.

    One request for each 1,000 runs.
    """
    slice_ = await Stream.try_read(stream_partition(table, handler, business_id), slice_size=None)
    if slice_ is None:
        return None
    tail = read_head(slice_.stream.properties or {}).tail
    runs = [read_run(event) for event in slice_.events]
    if tail is not None:
        runs.append(tail.run())
    return [version for run in runs for version in RunVersions(run)]


def _summary(stream: Stream) -> StreamSummary | None:
    if not is_state_stream(stream):
        return None
    handler, _, business_id = stream.partition.key.partition("-")
    head = read_head(stream.properties or {})
    runs = stream.version - stream.first_version + 1 + (head.tail is not None)
    return StreamSummary(handler, business_id, head, runs)


def is_state_stream(stream: Stream) -> bool:
    """Say whether a stream holds versions of a state, by the property `StateVersions` of its header."""
    return "-" in stream.partition.key and "StateVersions" in (stream.properties or {})
