"""SQL over a store, on DuckDB in this process: the tables `state`, `versions`, `batches` and `letters`."""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow.fs import LocalFileSystem

from runtime.errors import MissingExtraError, UsageError
from runtime.tables.reader import Kind, Request, scan

# A store as datasets of Arrow, which query engines scan: nothing is read before, and no more than they ask
# for.

_CONDITION = re.compile(
    r'\((\w+) (==|>|>=|<|<=) ("(?:[^"\\]|\\.)*"|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?Z)\)'
)
_COMPARED: Mapping[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
}
_OPPOSITES = {"==": ("<", ">"), ">": ("<=",), ">=": ("<",), "<": (">=",), "<=": (">",)}


class TableDataset(ds.Dataset):  # type: ignore[misc] # Arrow has no types
    """One kind of table of a store. `failure` is what a scan met, which engines tell in words of their own."""

    def __init__(self, store: str, table: str, request: Request) -> None:
        self._place = store, table
        self._request = request
        self.failure: Exception | None = None

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return self._request.schema

    def check(self) -> None:
        """Raise `UsageError` when the columns are not those of one handler's model."""
        self._request.with_columns(())

    def scanner(
        self,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,  # noqa: A002 - Arrow's name
        **_: Any,  # noqa: ANN401 - how fast to read ahead
    ) -> ds.Scanner:
        """Return what reads some columns of the rows that meet a condition."""
        schema, request = self.schema, self._request
        text = "" if filter is None else str(filter)
        names = [name for name in schema.names if columns is None or name in columns or name in text]
        request = request.with_columns(names or schema.names[:1])
        for condition in conditions_in(filter, schema):
            request = request.narrowed(*condition)
        return ds.Scanner.from_batches(
            self._batches(request), schema=request.schema, columns=columns, filter=filter
        )

    def _batches(self, request: Request) -> Iterator[pa.RecordBatch]:
        try:
            yield from scan(*self._place, request)
        except Exception as error:
            self.failure = error
            raise


Condition = tuple[str, str, str | datetime]


def conditions_in(condition: pc.Expression | None, schema: pa.Schema) -> list[Condition]:
    """Return comparisons of a column with a value that hold for all rows which a condition lets through.

    Arrow shows no parts of an expression. So they are read from its text, and each is believed only if Arrow finds that
    no row passes for which it does not hold.
    """
    if condition is None:
        return []
    found = [
        (column, relation, _value(written))
        for column, relation, written in _CONDITION.findall(str(condition))
    ]
    return [each for each in found if each[0] in schema.names and _is_implied(condition, each, schema)]


def _is_implied(condition: pc.Expression, part: Condition, schema: pa.Schema) -> bool:
    column, relation, value = part
    scalar = pa.scalar(value, schema.field(column).type)
    opposites = [_COMPARED[opposite](ds.field(column), scalar) for opposite in _OPPOSITES[relation]]
    # Files that nobody opens: Arrow only says which of them may hold such a row.
    files = ds.FileSystemDataset.from_paths(
        [str(number) for number in range(len(opposites))],
        schema=schema,
        format=ds.ParquetFileFormat(),
        filesystem=LocalFileSystem(),
        partitions=opposites,
    )
    return not list(files.get_fragments(filter=condition))


def _value(written: str) -> str | datetime:
    return str(json.loads(written)) if written.startswith('"') else datetime.fromisoformat(written)


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
