"""What the targets in SQL have in common: a table for each message type, and one for the markers of slices.

A slice is one transaction: first its marker, whose primary key lets one transaction in, then its outputs, each inserted
or updated by its id. So a slice that was sent twice is there once, and so is an output of two batches.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter

from runtime.errors import UsageError
from runtime.publishing.slices import CommittedOutput

MARKERS = "consistent_slices"

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_COLUMNS = (
    "message_id", "type", "business_id", "handler", "body", "sequence", "enqueued_at", "headers", "batch_id",
)  # fmt: skip
_KEPT = ("message_id", "batch_id")
"""What stays when an output is sent again: `batch_id` is the batch that brought it first."""

Row = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a database calls its types, and marks a parameter."""

    parameter: str
    number: str
    time: str
    json: str


@dataclass(frozen=True)
class Tables:
    """The tables that outputs go to, and the statements on them."""

    dialect: Dialect
    names: Mapping[str, str]
    batch_id: str

    def table_of(self, type_: str) -> str:
        """Return the table of a message type, quoted. Raises `UsageError` for a name that none can have."""
        name = self.names.get(type_, type_)
        parts = name.split(".")
        if not all(map(_NAME.fullmatch, parts)) or name == MARKERS:
            message = f"{name!r} cannot be the name of a table: choose another with --map {type_}=NAME."
            raise UsageError(message)
        return ".".join(f'"{part}"' for part in parts)

    def creations(self, types: Collection[str]) -> Iterator[str]:
        """Give the statements that make the tables which are not there."""
        yield (
            f"CREATE TABLE IF NOT EXISTS {MARKERS} (publication TEXT NOT NULL, slice INTEGER NOT NULL, "
            f"PRIMARY KEY (publication, slice))"
        )
        for table in sorted({self.table_of(each) for each in types}):
            yield (
                f"CREATE TABLE IF NOT EXISTS {table} (message_id TEXT PRIMARY KEY, type TEXT NOT NULL, "
                f"business_id TEXT NOT NULL, handler TEXT NOT NULL, body {self.dialect.json} NOT NULL, "
                f"sequence {self.dialect.number} NOT NULL, enqueued_at {self.dialect.time} NOT NULL, "
                f"headers {self.dialect.json} NOT NULL, batch_id TEXT NOT NULL)"
            )

    def marking(self) -> str:
        """Return the statement that inserts a marker, or nothing when it is there."""
        sign = self.dialect.parameter
        return f"INSERT INTO {MARKERS} (publication, slice) VALUES ({sign}, {sign}) ON CONFLICT DO NOTHING"

    def upserts(self, outputs: Sequence[CommittedOutput]) -> Iterator[tuple[str, list[Row]]]:
        """Give statements with the rows for each, in the order of the outputs."""
        for type_, some in groupby(outputs, attrgetter("type")):
            yield self._upsert(self.table_of(type_)), [self._row(each) for each in some]

    def _upsert(self, table: str) -> str:
        signs = ", ".join([self.dialect.parameter] * len(_COLUMNS))
        changes = ", ".join(f"{name} = excluded.{name}" for name in _COLUMNS if name not in _KEPT)
        return (
            f"INSERT INTO {table} ({', '.join(_COLUMNS)}) VALUES ({signs}) "
            f"ON CONFLICT (message_id) DO UPDATE SET {changes}"
        )

    def _row(self, output: CommittedOutput) -> Row:
        return (
            output.message_id, output.type, output.business_id, output.handler, output.body, output.sequence,
            output.enqueued_at.isoformat(), json.dumps(dict(output.headers)), self.batch_id,
        )  # fmt: skip
