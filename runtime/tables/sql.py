"""SQL queries on a store, with DuckDB: the tables of `runtime.tables`, and the outcomes of batches."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from runtime.errors import MissingExtraError, UsageError
from runtime.tables.reader import Request, TableKind, scan

_OUTPUTS = """
    create temp view outputs as select o.*, published_by, cause, batch_id, round from (
        select handler as published_by, message_id as cause, batch_id, round, unnest(outputs) as o from outcomes
    ) qualify row_number() over (partition by o.message_id order by batch_id, round) = 1
"""
"""A view of the outputs in outcomes, each once, as `consistent outcomes` shows them."""

_HINTS = {
    "name outcomes does not exist": " Add --out to query `outcomes` and `outputs`.",
    "name outputs does not exist": " Add --out to query `outcomes` and `outputs`.",
    "Permission Error": " Add --allow-files to use files and extensions.",
}

Read = Callable[[Sequence[str]], Iterable[pa.RecordBatch]]
"""Reads the columns of a table that have these names."""


class TableDataset(ds.Dataset):  # type: ignore[misc] # Arrow has no types
    """A table as an Arrow dataset. Reads only the columns needed. Raises `UsageError` if fields differ only in case."""

    def __init__(self, schema: pa.Schema, read: Read) -> None:
        for column in schema:
            _check_fields(column.name, column.type)
        self._schema = schema
        self._read = read
        self.failure: Exception | None = None  # of the last scan

    @property
    def schema(self) -> pa.Schema:
        """The columns of the table."""
        return self._schema

    def scanner(
        self,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,  # noqa: A002 - Arrow's name
        **_: Any,  # noqa: ANN401 - options for reading ahead
    ) -> ds.Scanner:
        """Return a scanner of the columns, for the rows that match the filter."""
        schema, text = self.schema, "" if filter is None else str(filter)
        # The columns of a filter can only be found in its text. A column that is read needlessly does no harm.
        named = [each for each in schema if columns is None or each.name in columns or each.name in text]
        schema = pa.schema(named or [schema.field(0)])
        batches = self._batches(schema.names)
        return ds.Scanner.from_batches(batches, schema=schema, columns=columns, filter=filter)

    def _batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._read(names)
        except Exception as error:
            self.failure = error
            raise


class Answer(NamedTuple):
    """The column names and the rows that a statement returns."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]


def query(
    store: str,
    table: str,
    statement: str,
    requests: Mapping[TableKind, Request],
    more: Mapping[str, TableDataset] | None = None,
    *,
    allow_files: bool = False,
) -> Answer:
    """Run one SQL statement, reading only the tables and columns that it names.

    `requests` has the tables of the store by kind, and `more` has other tables by name. A table named `outcomes` adds
    the view `outputs`. `allow_files` permits files and extensions in the statement. Raises `UsageError` for an invalid
    statement, `MissingExtraError` if DuckDB is not installed, and any error from reading a table.
    """
    try:
        import duckdb  # noqa: PLC0415 - an extra brings it
    except ModuleNotFoundError as error:
        raise MissingExtraError("SQL needs duckdb: pip install 'consistent-messaging[sql]'.") from error

    def read(request: Request, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        return scan(store, table, request.with_columns(names))

    datasets = {kind.value: TableDataset(each.schema, partial(read, each)) for kind, each in requests.items()}
    datasets |= more or {}
    with duckdb.connect() as connection:
        # Show times in UTC on any machine, and do not query variables of this module as tables.
        connection.execute("set TimeZone = 'UTC'; set python_enable_replacements = false")
        for name, dataset in datasets.items():
            connection.register(name, dataset)
        if "outcomes" in datasets:
            connection.execute(_OUTPUTS)
        if not allow_files:
            connection.execute("set enable_external_access = false; set lock_configuration = true")
        try:
            count = len(connection.extract_statements(statement))
            if count != 1:
                raise UsageError(f"Write exactly one statement, not {count}.")
            result = connection.sql(statement)
            if result is None:
                return Answer([], [])
            arrow = result.to_arrow_table()
            return Answer(arrow.column_names, list(zip(*map(_values, arrow.columns), strict=True)))
        except duckdb.Error as error:
            failures = [each.failure for each in datasets.values() if each.failure is not None]
            # The error in one line, without the excerpt of the statement.
            message, _, _ = str(error).partition("\n\nLINE ")
            hint = "".join({text for sign, text in _HINTS.items() if sign in message})
            refusal = UsageError(f"The statement failed: {' '.join(message.split())}{hint}")
            raise (failures[0] if failures else refusal) from error


def _check_fields(place: str, type_: pa.DataType) -> None:
    """Raise `UsageError` if two fields of the column `place` differ only in ASCII case, which DuckDB ignores."""
    known: dict[bytes, str] = {}
    for field in map(type_.field, range(type_.num_fields)):
        other = known.setdefault(field.name.encode().lower(), field.name)
        if other != field.name:
            raise UsageError(
                f"The fields {other} and {field.name} of {place} differ only in case, which SQL ignores. Omit --app to "
                f"query states as JSON."
            )
        _check_fields(f"{place}.{field.name}", field.type)


def _values(column: pa.ChunkedArray) -> list[Any]:
    try:
        values: list[Any] = column.to_pylist()
    except (OverflowError, ValueError) as error:
        raise UsageError(
            f"The result has a {column.type} that this command cannot show. Cast it to varchar."
        ) from error
    if not pa.types.is_map(column.type):
        return values
    return [None if value is None else dict(value) for value in values]
