"""A table in memory that counts requests and the rows they read, and knows how many bytes stand in it."""

from __future__ import annotations

from collections.abc import Iterator

from eventstore import InterceptedTable, Page, Row, connect, drive
from eventstore.keys import escape
from eventstore.limits import prepare_row

_FIRST, _LAST = "", "~~"
_KEY_CHARACTER_BYTES = 2


class MeteredTable(InterceptedTable):
    """An empty table that is metered from now on."""

    def __init__(self) -> None:
        super().__init__(drive(connect("memory:").table("metered")), after=self._note)
        self.rows_read = 0
        self._bytes: dict[str, int] = {}
        self._changed: set[str] = set()

    @property
    def requests(self) -> int:
        """The number of requests to a table service so far: a barrier is none."""
        return self.calls - self.counts["barrier"]

    @property
    def stored_bytes(self) -> int:
        """The bytes of all rows, as Azure Table Storage counts them for its prices."""
        while self._changed:
            partition_key = self._changed.pop()
            self._bytes[partition_key] = sum(map(row_bytes, self._stored_rows(partition_key)))
        return sum(self._bytes.values())

    def _stored_rows(self, partition_key: str) -> Iterator[Row]:
        continuation: str | None = None
        while True:
            page = drive(self._table.query(partition_key, _FIRST, _LAST, continuation=continuation))
            yield from page.rows
            continuation = page.continuation
            if continuation is None:
                return

    def _note(self, call: str, partition_key: str, _number: int, result: object) -> None:
        if call == "transact":
            self._changed.add(partition_key)
        if isinstance(result, Row):
            self.rows_read += 1
        elif isinstance(result, Page):
            self.rows_read += len(result.rows)


def row_bytes(row: Row) -> int:
    """Return the size of one row: its keys as they are stored, and its properties with their names."""
    keys = escape(row.partition_key) + escape(row.row_key)
    return prepare_row(row.properties)[1] + _KEY_CHARACTER_BYTES * len(keys)
