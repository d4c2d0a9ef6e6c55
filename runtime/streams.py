"""Looking at state streams: which there are, and what one of them holds."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass

from eventstore import Row, Stream, Table
from runtime.head import HEAD_PROPERTIES, Head, read_head
from runtime.message_ids import id_text
from runtime.properties import number
from runtime.run import Run, StateVersion, read_run
from runtime.state_stream import stream_partition

_HEADER = "SS-HEAD"
_PLAIN = re.compile(r"[A-Za-z0-9_.:-]*")


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


@dataclass(frozen=True, slots=True)
class StoredVersion:
    """One version of a stream: its number, its record, the states around it, and the run that holds it.

    States are encoded; `schema` is their schema version.
    """

    number: int
    version: StateVersion
    before: bytes
    after: bytes
    schema: int
    batch: str | None
    written_at: int

    @property
    def message_id(self) -> str:
        """The id of the message that made the version."""
        return id_text(self.version.message_id)


async def summaries(
    table: Table, handler: str | None = None, prefix: str = ""
) -> AsyncIterator[StreamSummary]:
    """Give the streams of a table in the order of their keys, of one handler or all.

    `prefix` is what their business ids begin with; without a handler, all headers are read for it.
    One request for each 1,000 streams.
    """
    first, last = _range(handler, prefix) if handler else ("", None)
    continuation = None
    while True:
        page = await table.scan(
            _HEADER,
            first,
            last,
            select=["Version", "FirstVersion", *HEAD_PROPERTIES],
            continuation=continuation,
        )
        for row in page.rows:
            summary = _summary(row)
            if summary is not None and summary.business_id.startswith(prefix):
                yield summary
        continuation = page.continuation
        if continuation is None:
            return


async def stream_keys(table: Table) -> list[str]:
    """Return the partition keys of all state streams of a table."""
    return [summary.key async for summary in summaries(table)]


async def versions(table: Table, handler: str, business_id: str) -> list[StoredVersion] | None:
    """Return all versions of a stream that are kept, the oldest first; None when there is no stream.

    One request for each 1,000 runs.
    """
    slice_ = await Stream.try_read(stream_partition(table, handler, business_id), slice_size=None)
    if slice_ is None:
        return None
    return [version for event in slice_.events for version in _of_run(read_run(event))]


def _of_run(run: Run) -> list[StoredVersion]:
    states = run.states_before()
    return [
        StoredVersion(
            run.first + position,
            version,
            states[position],
            states[position] if version.after is None else version.after,
            run.schema,
            run.batch,
            run.written_at,
        )
        for position, version in enumerate(run.versions)
    ]


def _range(handler: str, prefix: str) -> tuple[str, str]:
    """Return the ends of a range that holds the keys with a prefix; the order of others than ASCII is not relied on."""
    first = f"{handler}-{prefix}" if _PLAIN.fullmatch(prefix) else f"{handler}-"
    return first, first[:-1] + chr(ord(first[-1]) + 1)


def _summary(row: Row) -> StreamSummary | None:
    handler, hyphen, business_id = row.partition_key.partition("-")
    if not hyphen or "StateVersions" not in row.properties:
        return None
    runs = number(row.properties, "Version") - number(row.properties, "FirstVersion", 1) + 1
    return StreamSummary(handler, business_id, read_head(row.properties), runs)
