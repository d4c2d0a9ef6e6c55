"""Rows of a table as Arrow has them: keys, and a list of properties, each in the field that is named by its type."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa

from eventstore import Int64, Row, Value
from runtime.archives.files import read_batches, reading
from runtime.clock import to_datetime
from runtime.errors import ArchiveError

_TYPES: dict[type, tuple[str, pa.DataType]] = {
    str: ("string", pa.string()),
    bool: ("boolean", pa.bool_()),
    int: ("int32", pa.int32()),
    Int64: ("int64", pa.int64()),
    float: ("double", pa.float64()),
    datetime: ("datetime", pa.timestamp("us", tz="UTC")),
    UUID: ("uuid", pa.binary(16)),
    bytes: ("binary", pa.binary()),
}
_READ: dict[str, Callable[[Any], Value]] = {
    "int64": Int64,
    "datetime": to_datetime,
    "uuid": lambda value: UUID(bytes=value),
}
_FIELDS = [pa.field("name", pa.string(), nullable=False), *(pa.field(*each) for each in _TYPES.values())]
_PROPERTIES = pa.list_(pa.struct(_FIELDS))

SCHEMA = pa.schema(
    [
        pa.field("partition_key", pa.string(), nullable=False),
        pa.field("row_key", pa.string(), nullable=False),
        pa.field("properties", _PROPERTIES, nullable=False),
    ]
)


class RowBuffer:
    """Rows that are on their way into an Arrow batch."""

    def __init__(self) -> None:
        self._begin()

    def __len__(self) -> int:
        return len(self._row_keys)

    def _begin(self) -> None:
        self.bytes = 0
        self._partition_keys: list[str] = []
        self._row_keys: list[str] = []
        self._ends = [0]
        self._names: list[str] = []
        self._columns: dict[type, list[Value | None]] = {type_: [] for type_ in _TYPES}

    def add(self, row: Row) -> None:
        """Add a row."""
        self._partition_keys.append(row.partition_key)
        self._row_keys.append(row.row_key)
        for name, value in row.properties.items():
            self._names.append(name)
            for type_, column in self._columns.items():
                column.append(value if type(value) is type_ else None)
            self.bytes += len(value) if isinstance(value, str | bytes) else len(name)
        self._ends.append(len(self._names))

    def take(self) -> pa.RecordBatch:
        """Return the rows that were added, and begin anew."""
        columns = [pa.array(self._names, pa.string())]
        for type_, values in self._columns.items():
            columns.append(pa.array(_bytes_of(values) if type_ is UUID else values, _TYPES[type_][1]))
        properties = pa.ListArray.from_arrays(
            pa.array(self._ends, pa.int32()), pa.StructArray.from_arrays(columns, fields=_FIELDS), _PROPERTIES
        )
        keys = [pa.array(self._partition_keys, pa.string()), pa.array(self._row_keys, pa.string())]
        self._begin()
        return pa.RecordBatch.from_arrays([*keys, properties], schema=SCHEMA)


def read_rows(path: Path) -> Iterator[Sequence[Row]]:
    """Give the rows in a file, up to 1,000 at a time; they have no ETags. Raises `ArchiveError`."""
    for batch in read_batches(path):
        with reading(path):
            rows = list(_rows_in(batch))
        yield rows


def _rows_in(batch: pa.RecordBatch) -> Iterator[Row]:
    lists = batch.column("properties")
    properties = list(_properties(lists.flatten()))
    ends = [end - lists.offsets[0].as_py() for end in lists.offsets.to_pylist()]
    keys = zip(batch.column("partition_key").to_pylist(), batch.column("row_key").to_pylist(), strict=True)
    for number, (partition_key, row_key) in enumerate(keys):
        yield Row(partition_key, row_key, "", dict(properties[ends[number] : ends[number + 1]]))


def _properties(found: pa.StructArray) -> Iterator[tuple[str, Value]]:
    names, *columns = found.flatten()
    given: list[list[Value | None]] = []
    for (name, _), column in zip(_TYPES.values(), columns, strict=True):
        if column.null_count < len(column):
            given.append(_values(name, column))
    for number, name in enumerate(names.to_pylist()):
        for values in given:
            value = values[number]
            if value is not None:
                yield name, value
                break
        else:
            raise ArchiveError(f"the property {name} has no value")


def _values(name: str, column: pa.Array) -> list[Value | None]:
    read = _READ.get(name)
    plain = column.cast(pa.int64()) if name == "datetime" else column
    values: list[Value | None] = plain.to_pylist()
    return values if read is None else [None if value is None else read(value) for value in values]


def _bytes_of(values: Sequence[Value | None]) -> list[bytes | None]:
    return [value.bytes if isinstance(value, UUID) else None for value in values]
