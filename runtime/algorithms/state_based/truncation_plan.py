"""What a truncation is going to cut of one stream, measured, and the cutting of exactly that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from eventstore import Include, Row, Stream
from eventstore.header import header_row
from eventstore.limits import prepare_row, row_bytes
from eventstore.truncation import CutRows, rows_to_cut
from runtime.storage.head import Head
from runtime.storage.id_index import index_below
from runtime.storage.run import RunIndex
from runtime.storage.tail import NO_EVENT


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be cut of a stream: events before `first_event`, index rows, and segments of the tail of its head.

    Without a head only rows are deleted that an earlier truncation has left.
    """

    stream: Stream
    first_event: int
    rows: CutRows
    index: Sequence[Row] = ()
    head: Head | None = None

    @property
    def count(self) -> int:
        """How many rows go."""
        return len(self.rows.row_keys) + len(self.index)

    @property
    def bytes(self) -> int:
        """By how much the table is smaller afterwards."""
        size = self.rows.bytes + sum(map(row_bytes, self.index))
        if self.head is None:
            return size
        version = self.stream.version
        before = header_row(version, self.stream.first_version, self.stream.properties or {})
        after = header_row(version, self.first_event, self.head.properties())
        return size + prepare_row(before)[1] - prepare_row(after)[1]

    async def carry_out(self) -> None:
        """Cut it. A transaction for each 99 rows. Raises `ConcurrencyConflictError`."""
        properties = self.head.properties() if self.head else None
        changes = [Include.delete(row.row_key, "*") for row in self.index]
        await Stream.truncate(self.stream, self.first_event, properties, changes, self.rows)


async def planned(stream: Stream, gone: Sequence[RunIndex], head: Head) -> Plan | None:
    """Return what is to be cut when these runs go, the oldest of a stream: events, and segments of the tail."""
    if not gone:
        if stream.first_version == 1:
            return None
        rows = await rows_to_cut(stream, stream.first_version)
        return Plan(stream, stream.first_version, rows) if rows.row_keys else None
    if head.tail is not None and head.tail.first < head.kept_from:
        head = head._replace(tail=head.tail.from_version(head.kept_from))
    first_event = (
        max([run.event for run in gone if run.event != NO_EVENT], default=stream.first_version - 1) + 1
    )
    index = await index_below(stream.partition, head.kept_from)
    return Plan(stream, first_event, await rows_to_cut(stream, first_event), index, head)
