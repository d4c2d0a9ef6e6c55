"""Tables in memory, for tests and model checking. The shortest implementation of the port.

`memory:` is a private store, and `memory:NAME` is shared within the process. ETags are numbers that never repeat. Calls
never suspend.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count
from threading import RLock
from typing import Final

from eventstore import port
from eventstore.errors import TableNotFoundError
from eventstore.keys import BETWEEN_KEYS, escape, table_name
from eventstore.limits import merge, prepare, refusal
from eventstore.port import PAGE_SIZE, Bounds, Operation, Page, PageKind, Row, Scope, Verb


class MemoryPartition:
    """The rows of one partition by escaped key."""

    __slots__ = ("_order", "rows")

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}
        self._order: list[str] | None = None

    def between(self, first: str, last: str) -> list[str]:
        if self._order is None:
            self._order = sorted(self.rows)
        return self._order[bisect_left(self._order, first) : bisect_right(self._order, last)]

    def put(self, stored_key: str, row: Row | None) -> None:
        """Insert or replace a row, or delete it if `row` is None."""
        if row is None:
            del self.rows[stored_key]
            self._order = None
        else:
            # The order changes with the set of keys only.
            if stored_key not in self.rows:
                self._order = None
            self.rows[stored_key] = row


class MemoryTable(port.RangeTable):
    scope: Scope = "process"

    def __init__(
        self,
        etags: Iterable[int],
        lock: RLock,
        clock: Callable[[], datetime] | None = None,
        name: str = "",
        store_url: str = "",
    ) -> None:
        self.name = name
        self.store_url = store_url
        self._partitions: dict[str, MemoryPartition] = {}
        self._etags = iter(etags)
        self._lock = lock
        self._clock = clock

    async def get(self, partition_key: str, row_key: str) -> Row | None:
        stored_key, stored_row_key = escape(partition_key), escape(row_key)
        with self._lock:
            partition = self._partitions.get(stored_key)
            row = partition.rows.get(stored_row_key) if partition else None
        return _read(row, None) if row else None

    async def page(
        self, kind: PageKind, bounds: Bounds, select: Sequence[str] | None, continuation: str | None
    ) -> Page:
        key, low, high = bounds
        rows: list[tuple[str, Row]] = []
        with self._lock:
            if kind == "query":
                partition = self._partitions.get(key) or MemoryPartition()
                found = partition.between(continuation or low, high)[: PAGE_SIZE + 1]
                return _page([(each, partition.rows[each]) for each in found], select)
            for each, partition in self._partitions.items():
                if low <= each <= high:
                    wanted = partition.rows if kind == "scan_all" else partition.rows.keys() & {key}
                    rows += [(each + BETWEEN_KEYS + stored, partition.rows[stored]) for stored in wanted]
        rows.sort()
        return _page(rows[bisect_left(rows, (continuation or "",)) :], select)

    async def transact(self, partition_key: str, operations: Sequence[Operation]) -> tuple[str, ...]:
        prepared = prepare(partition_key, operations)
        stored_key = escape(partition_key)
        stored_row_keys = [escape(operation.row_key) for operation in operations]
        with self._lock:
            partition = self._partitions.get(stored_key) or MemoryPartition()
            changes: list[Row | None] = []
            now = self._clock() if self._clock else None
            for index, operation in enumerate(operations):
                before = partition.rows.get(stored_row_keys[index])
                after = Row(partition_key, operation.row_key, str(next(self._etags)), prepared[index], now)
                changes.append(_changed(before, after, operation, index))
            for stored, row in zip(stored_row_keys, changes, strict=True):
                partition.put(stored, row)
            self._partitions[stored_key] = partition
            if not partition.rows:
                del self._partitions[stored_key]
        return tuple([row.etag if row else "" for row in changes])

    async def transact_each(self, transactions: Sequence[port.Transaction]) -> list[port.TransactionResult]:
        """Run several transactions. A reader sees the changes of all transactions or of none."""
        results: list[port.TransactionResult] = []
        with self._lock:
            for partition_key, operations in transactions:
                try:
                    results.append(await self.transact(partition_key, operations))
                except Exception as error:  # noqa: BLE001 - an error of one transaction is its result
                    results.append(error)
        return results

    async def query_each(
        self, partition_keys: Sequence[str], first: str, last: str
    ) -> list[tuple[Row, ...] | None]:
        """Read all partitions as of the same moment. The result of a partition with several pages is None."""
        with self._lock:
            pages = [await self.query(key, first, last) for key in partition_keys]
        return [page.rows if page.continuation is None else None for page in pages]

    async def barrier(self) -> None:
        """No-op: memory does not survive a power failure."""


class MemoryStore(port.Store):
    """Tables in the memory of this process, which live as long as the store. See `open_memory` for sharing by name."""

    scope: Scope = "process"

    def __init__(self, url: str) -> None:
        self.url = url
        self._tables: dict[str, MemoryTable] = {}
        self._etags = count(1)
        self._lock: Final = RLock()

    async def table(self, name: str, *, make: bool = True) -> MemoryTable:
        with self._lock:
            if not make and table_name(name) not in self._tables:
                raise TableNotFoundError(name, self.url)
            return self._tables.setdefault(
                table_name(name),
                MemoryTable(self._etags, self._lock, lambda: datetime.now(UTC), name, self.url),
            )

    async def close(self) -> None:
        """No-op: the tables live as long as the store."""


_shared: dict[str, MemoryStore] = {}


def open_memory(url: str) -> MemoryStore:
    """Return a new store for `memory:`, or the process's shared store for `memory:NAME`."""
    if url == "memory:":
        return MemoryStore(url)
    return _shared.setdefault(url, MemoryStore(url))


def _page(rows: Sequence[tuple[str, Row]], select: Sequence[str] | None) -> Page:
    """Return the first page of the rows, with only the selected properties.

    The continuation is the key of the row after the page.
    """
    following = rows[PAGE_SIZE][0] if len(rows) > PAGE_SIZE else None
    return Page(tuple([_read(row, select) for _, row in rows[:PAGE_SIZE]]), following)


def _read(row: Row, select: Sequence[str] | None) -> Row:
    properties = dict(row.properties)
    if select is not None:
        properties = {name: properties[name] for name in select if name in properties}
    return Row(row.partition_key, row.row_key, row.etag, properties, row.timestamp)


def _changed(before: Row | None, after: Row, operation: Operation, index: int) -> Row | None:
    refused = refusal(operation, index, before.etag if before else None)
    if refused is not None:
        raise refused
    if operation.verb is Verb.DELETE:
        return None
    if before is not None and operation.verb in (Verb.MERGE, Verb.INSERT_OR_MERGE):
        return replace(after, properties=merge(before.properties, after.properties))
    return after
