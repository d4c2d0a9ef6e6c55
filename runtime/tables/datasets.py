"""A store as datasets of Arrow, which query engines scan: nothing is read before, and no more than they ask for."""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow.fs import LocalFileSystem

from runtime.tables.reading import scan
from runtime.tables.requests import Request

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
