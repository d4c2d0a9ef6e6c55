"""Tables in memory, and all that stands in them."""

from collections.abc import Mapping
from typing import Any

from eventstore import Operation, Table, connect, drive
from eventstore.backends.memory import MemoryTable

Contents = Mapping[tuple[str, str], tuple[str, Mapping[str, Any]]]


def memory_table() -> Table:
    return drive(connect("memory:").table("states"))


def contents(table: Table) -> Contents:
    """Return all rows of a table in memory with their ETags, by partition and row key."""
    assert isinstance(table, MemoryTable)
    return {
        (row.partition_key, row.row_key): (row.etag, dict(row.properties))
        for partition in table._partitions.values()
        for row in partition.rows.values()
    }


def rows(table: Table) -> Mapping[tuple[str, str], Mapping[str, Any]]:
    return {key: properties for key, (_, properties) in contents(table).items()}


def copy_of(table: Table) -> Table:
    copied = memory_table()
    for (partition_key, row_key), properties in rows(table).items():
        drive(copied.transact(partition_key, [Operation.insert(row_key, properties)]))
    return copied
