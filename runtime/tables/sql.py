"""SQL over a store, on DuckDB in this process: the tables `state`, `versions`, `batches` and `letters`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from runtime.errors import MissingExtraError, UsageError
from runtime.tables.reader import Kind, Request, scan

_SETTINGS = "set TimeZone = 'UTC'; set python_enable_replacements = false"
"""Times are in UTC wherever the machine is, and variables of this module are no tables."""


class TableDataset(ds.Dataset):  # type: ignore[misc] # Arrow has no types
    """One kind of table of a store as a dataset of Arrow, which an engine scans for the columns that it names.

    `failure` is what a scan met, which engines tell in words of their own.
    """

    def __init__(self, store: str, table: str, request: Request) -> None:
        self._place = store, table
        self._request = request
        self.failure: Exception | None = None

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return self._request.schema

    def scanner(
        self,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,  # noqa: A002 - Arrow's name
        **_: Any,  # noqa: ANN401 - how fast to read ahead
    ) -> ds.Scanner:
        """Return what reads some columns of the rows that meet a condition."""
        schema, text = self.schema, "" if filter is None else str(filter)
        # Arrow tells the columns of a condition in its text alone. One that is read in vain costs time, no more.
        names = [name for name in schema.names if columns is None or name in columns or name in text]
        request = self._request.with_columns(names or schema.names[:1])
        return ds.Scanner.from_batches(
            self._batches(request), schema=request.schema, columns=columns, filter=filter
        )

    def _batches(self, request: Request) -> Iterator[pa.RecordBatch]:
        try:
            yield from scan(*self._place, request)
        except Exception as error:
            self.failure = error
            raise


class Answer(NamedTuple):
    """What a statement gave: the names of its columns, and its rows."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]


def query(store: str, table: str, statement: str, requests: Mapping[Kind, Request]) -> Answer:
    """Return what a statement gives: it reads the tables that it names, and of those what it asks for.

    Raises `UsageError` for a statement that DuckDB refuses, `MissingExtraError` without DuckDB, and what reading
    raises.
    """
    try:
        import duckdb  # noqa: PLC0415 - an extra brings it
    except ModuleNotFoundError as error:
        raise MissingExtraError("SQL needs duckdb: pip install 'consistent-messaging[sql]'.") from error
    datasets = {kind: TableDataset(store, table, request) for kind, request in requests.items()}
    for request in requests.values():
        request.with_columns(())
    with duckdb.connect() as connection:
        connection.execute(_SETTINGS)
        for kind, dataset in datasets.items():
            connection.register(kind.value, dataset)
        try:
            found = connection.sql(statement)
            if found is None:
                return Answer([], [])
            arrow = found.to_arrow_table()
            return Answer(arrow.column_names, list(zip(*map(_values, arrow.columns), strict=True)))
        except duckdb.Error as error:
            for dataset in datasets.values():
                if dataset.failure is not None:
                    raise dataset.failure from error
            # On one line, without the statement and the marks below it.
            told, _, _ = str(error).partition("\n\nLINE ")
            raise UsageError(f"The statement cannot be run: {' '.join(told.split())}") from error


def _values(column: pa.ChunkedArray) -> list[Any]:
    try:
        values: list[Any] = column.to_pylist()
    except (OverflowError, ValueError) as error:
        raise UsageError(
            f"The statement gives a {column.type} that this command cannot show: cast it to varchar."
        ) from error
    if not pa.types.is_map(column.type):
        return values
    return [None if value is None else dict(value) for value in values]
