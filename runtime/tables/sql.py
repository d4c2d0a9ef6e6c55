"""SQL over a store, on DuckDB in this process: the tables of `runtime.tables`, and the outcomes of batches."""

from __future__ import annotations

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
"""The outputs of outcomes, each once, as `consistent outcomes` has them."""

_HINTS = {
    "name outcomes does not exist": " `outcomes` and `outputs` are tables with --out.",
    "name outputs does not exist": " `outcomes` and `outputs` are tables with --out.",
    "Permission Error": " Files and extensions are for queries with --allow-files.",
}

Read = Callable[[Sequence[str]], Iterable[pa.RecordBatch]]  # reads some columns of a table, in record batches


class TableDataset(ds.Dataset):  # type: ignore[misc] # Arrow has no types
    """A table as a dataset of Arrow, scanned for the columns that a statement names. `failure` is the error of a scan.

    Raises `UsageError` for columns that SQL cannot tell apart.
    """

    def __init__(self, schema: pa.Schema, read: Read) -> None:
        for column in schema:
            _check_fields(column.name, column.type)
        self._schema = schema
        self._read = read
        self.failure: Exception | None = None

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return self._schema

    def scanner(
        self,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,  # noqa: A002 - Arrow's name
        **_: Any,  # noqa: ANN401 - how fast to read ahead
    ) -> ds.Scanner:
        """Return a scanner of some columns of the rows that meet a condition."""
        schema, text = self.schema, "" if filter is None else str(filter)
        # Arrow tells the columns of a condition in its text alone. One that is read in vain costs time, no more.
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
    """What a statement gave: the names of its columns, and its rows."""

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
    """Return the result of a statement, reading only the tables and columns that it names.

    `more` are further tables by their names; beside `outcomes` there is a view `outputs`.

    Raises `UsageError` for a statement that DuckDB refuses, `MissingExtraError` without DuckDB, and errors of reading.
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
        # Times are in UTC wherever the machine is, and variables of this module are no tables.
        connection.execute("set TimeZone = 'UTC'; set python_enable_replacements = false")
        for name, dataset in datasets.items():
            connection.register(name, dataset)
        if "outcomes" in datasets:
            connection.execute(_OUTPUTS)
        if not allow_files:  # nor extensions
            connection.execute("set enable_external_access = false; set lock_configuration = true")
        try:
            count = len(connection.extract_statements(statement))
            if count != 1:
                raise UsageError(f"Give one statement: there {'are ' + str(count) if count else 'is none'}.")
            found = connection.sql(statement)
            if found is None:
                return Answer([], [])
            arrow = found.to_arrow_table()
            return Answer(arrow.column_names, list(zip(*map(_values, arrow.columns), strict=True)))
        except duckdb.Error as error:
            failures = [each.failure for each in datasets.values() if each.failure is not None]
            # On one line, without the statement and the marks below it.
            told, _, _ = str(error).partition("\n\nLINE ")
            hint = "".join({text for sign, text in _HINTS.items() if sign in told})
            refusal = UsageError(f"The statement cannot be run: {' '.join(told.split())}{hint}")
            raise (failures[0] if failures else refusal) from error


def _check_fields(place: str, type_: pa.DataType) -> None:
    """Raise `UsageError` for fields whose names DuckDB, which takes ASCII letters of both cases for one, confuses."""
    known: dict[bytes, str] = {}
    for field in map(type_.field, range(type_.num_fields)):
        other = known.setdefault(field.name.encode().lower(), field.name)
        if other != field.name:
            raise UsageError(
                f"SQL cannot tell the fields {other} and {field.name} of {place} apart: leave --app out, and states "
                f"are JSON."
            )
        _check_fields(f"{place}.{field.name}", field.type)


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
