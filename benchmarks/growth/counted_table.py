"""A table that counts requests, and the bytes of the rows that they read and sent."""

from __future__ import annotations

from collections.abc import Sequence

from eventstore import InterceptedTable, Operation, Page, Row, Table
from eventstore.limits import prepare_row


class CountedTable(InterceptedTable):
    """Counts the bytes of properties, as a table service counts them for its limits."""

    def __init__(self, table: Table) -> None:
        super().__init__(table)
        self.bytes_read = 0
        self.bytes_sent = 0

    async def get(self, partition_key: str, row_key: str) -> Row | None:
        """Count what is read."""
        row = await super().get(partition_key, row_key)
        self.bytes_read += 0 if row is None else prepare_row(row.properties)[1]
        return row

    async def query(
        self,
        partition_key: str,
        first: str,
        last: str,
        *,
        select: Sequence[str] | None = None,
        continuation: str | None = None,
    ) -> Page:
        """Count what is read."""
        page = await super().query(partition_key, first, last, select=select, continuation=continuation)
        self.bytes_read += sum(prepare_row(row.properties)[1] for row in page.rows)
        return page

    async def transact(self, partition_key: str, operations: Sequence[Operation]) -> tuple[str, ...]:
        """Count what is sent."""
        self.bytes_sent += sum(prepare_row(operation.properties)[1] for operation in operations)
        return await super().transact(partition_key, operations)
