"""A store in memory whose calls may suspend, as on the network; and one on the network whose calls do not."""

from collections.abc import Iterator
from contextlib import contextmanager
from inspect import iscoroutinefunction
from typing import Any, cast

from eventstore import Table
from eventstore.backends.memory import MemoryStore, MemoryTable
from eventstore.sync import BlockingStore


class NetworkStore(MemoryStore):
    """Tables in memory, as seen from the network."""

    scope = "network"

    async def table(self, name: str, *, make: bool = True) -> MemoryTable:
        table = await super().table(name, make=make)
        table.scope = self.scope
        return table


class DrivenTable:
    """A table on the network whose calls never suspend: for worlds that are driven without an event loop."""

    scope = "machine"

    def __init__(self, store: BlockingStore, table: Table) -> None:
        self._store = store
        self._table = table

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._table, name)
        if not iscoroutinefunction(found):
            return found

        async def call(*args: Any, **options: Any) -> Any:
            return self._store.run(found(*args, **options))

        return call


@contextmanager
def driven_table(url: str, name: str) -> Iterator[Table]:
    """Open a table of any store, to be used by `drive`."""
    with BlockingStore(url) as store:
        table = store.table(name)
        yield cast("Table", DrivenTable(store, table)) if table.scope == "network" else table
