"""The columns of the tables as which a store is read, and record batches of bounded size."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from runtime.errors import UsageError

TEXT = pa.string()
TIME = pa.timestamp("us", tz="UTC")

MAX_ROWS = 10_000
MAX_BYTES = 8 * 2**20
"""When a record batch is full, by its rows and by the bytes of its states."""

Columns = Mapping[str, pa.DataType]

Makers = Mapping[str, Callable[[Sequence[Any]], pa.Array]]
"""What makes the arrays of some columns from values of another form."""

_NONE: Makers = MappingProxyType({})

_UNFIT = (pa.ArrowException, OverflowError, TypeError)
"""What Arrow raises for a value that is not of the type of its column."""


def chosen(columns: Columns, names: Sequence[str] | None) -> dict[str, pa.DataType]:
    """Return the columns that are asked for, all for None. Raises `UsageError` for one that is not there."""
    if names is None:
        return dict(columns)
    unknown = sorted(set(names) - set(columns))
    if unknown:
        raise UsageError(f"There is no column {unknown[0]}: the columns are {', '.join(columns)}.")
    return {name: columns[name] for name in names}


def to_batch(
    columns: Columns, values: Mapping[str, Sequence[Any]], count: int, makers: Makers = _NONE
) -> pa.RecordBatch:
    """Return some rows, given column by column; times are in microseconds since 1970 UTC.

    Raises `UsageError` for a state that the columns of its model cannot hold.
    """
    if not columns:
        return pa.RecordBatch.from_struct_array(pa.array([{}] * count, pa.struct([])))
    arrays = [
        makers[name](values[name]) if name in makers else _array(name, type_, values)
        for name, type_ in columns.items()
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(list(columns.items())))


def _array(name: str, type_: pa.DataType, values: Mapping[str, Sequence[Any]]) -> pa.Array:
    if type_ == TIME:
        return pa.array(values[name], pa.int64()).cast(TIME)
    try:
        return pa.array(values[name], type_)
    except _UNFIT as error:
        raise UsageError(_unfit(name, type_, values)) from error


def _unfit(name: str, type_: pa.DataType, values: Mapping[str, Sequence[Any]]) -> str:
    """Say which value a column cannot hold: an integer of a model may have more than 64 bits."""
    for position, value in enumerate(values[name]):
        try:
            pa.scalar(value, type_)
        except _UNFIT as error:
            parts = [values[each][position] for each in ("handler", "business_id") if each in values]
            of = f" of {'-'.join(parts)}" if parts else ""
            return f"A state{of} cannot be columns: {error}. Leave the app out, and states are JSON."
    return f"The column {name} cannot be made."


class Buffer:
    """Collects rows column by column; `take` gives a record batch."""

    def __init__(self, columns: Columns, makers: Makers = _NONE) -> None:
        self.columns = columns
        self._makers = makers
        self.rows = 0
        self.bytes = 0
        self._values: dict[str, list[Any]] = {name: [] for name in columns}

    @property
    def is_full(self) -> bool:
        """Whether it is time to take what there is."""
        return self.rows >= MAX_ROWS or self.bytes >= MAX_BYTES

    def add(self, values: Mapping[str, Sequence[Any]], count: int, size: int) -> None:
        """Add rows whose states take so many bytes."""
        for name, known in self._values.items():
            known.extend(values[name])
        self.rows += count
        self.bytes += size

    def take(self) -> pa.RecordBatch:
        """Return what was added since the last time."""
        batch = to_batch(self.columns, self._values, self.rows, self._makers)
        self.rows = self.bytes = 0
        self._values = {name: [] for name in self.columns}
        return batch
