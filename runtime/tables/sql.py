"""SQL over a store, on DuckDB in this process: the tables `state`, `versions`, `batches` and `letters`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from runtime.errors import MissingExtraError, UsageError
from runtime.tables.datasets import TableDataset
from runtime.tables.requests import Kind, Request


class Answer(NamedTuple):
    """What a statement gave: the names of its columns, and its rows."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]


_SETTINGS = "set TimeZone = 'UTC'; set python_enable_replacements = false"
"""Times are in UTC wherever the machine is, and variables of this module are no tables."""


def query(store: str, table: str, statement: str, requests: Mapping[Kind, Request]) -> Answer:
    """Return what a statement gives: it reads the tables that it names, and of those what it asks for.

    Raises `UsageError` for a statement that DuckDB refuses, `MissingExtraError` without DuckDB, and what reading
    raises.
    """
    duckdb = _engine()
    datasets = {kind: TableDataset(store, table, request) for kind, request in requests.items()}
    for dataset in datasets.values():
        dataset.check()
    with duckdb.connect() as connection:
        connection.execute(_SETTINGS)
        for kind, dataset in datasets.items():
            connection.register(kind.value, dataset)
        try:
            found = connection.sql(statement)
            return Answer([], []) if found is None else _answer(found.to_arrow_table())
        except duckdb.Error as error:
            for dataset in datasets.values():
                if dataset.failure is not None:
                    raise dataset.failure from error
            raise UsageError(_sentence(error)) from error


def _answer(found: pa.Table) -> Answer:
    columns = [_values(column) for column in found.columns]
    return Answer(found.column_names, list(zip(*columns, strict=True)))


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


def _engine() -> Any:  # noqa: ANN401 - a module without types
    try:
        import duckdb  # noqa: PLC0415 - an extra brings it
    except ModuleNotFoundError as error:
        if error.name != "duckdb":
            raise
        raise MissingExtraError("SQL needs duckdb: pip install 'consistent-messaging[sql]'.") from error
    return duckdb


def _sentence(error: Exception) -> str:
    """Return what DuckDB says on one line, without the statement and the marks below it."""
    told, _, _ = str(error).partition("\n\nLINE ")
    return f"The statement cannot be run: {' '.join(told.split())}"
