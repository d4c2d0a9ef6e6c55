"""Read states, versions, batches and dead letters of a store as Arrow tables or record batches."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from eventstore import KeyRange, Table
from handlers import App
from runtime.clock import is_in_calendar, to_microseconds
from runtime.dead_letters import FoundLetter, Selection, describe_letter, find_letters
from runtime.errors import UsageError
from runtime.ledger.ledger import BatchRecord, records
from runtime.ledger.settings import TableSettings
from runtime.tables import versions
from runtime.tables.columns import TEXT, TIME, Columns, chosen, in_batches, model_of
from runtime.tables.streams import ALL, StreamQuery
from runtime.versions.properties import error_location

if TYPE_CHECKING:
    from eventstore.sync import BlockingStore

_BATCHES: Mapping[str, tuple[pa.DataType, Callable[[BatchRecord], Any]]] = {
    "batch": (TEXT, attrgetter("batch_id")),
    "batch_number": (pa.int64(), attrgetter("number")),
    "status": (TEXT, attrgetter("status.value")),
    "algorithm": (TEXT, attrgetter("algorithm")),
    "input": (TEXT, attrgetter("input")),
    "out": (TEXT, attrgetter("shown_in")),
    "rounds": (pa.int32(), attrgetter("rounds")),
    "started_at": (TIME, lambda record: to_microseconds(record.started_at)),
    "updated_at": (TIME, lambda record: to_microseconds(record.updated_at)),
    "counts": (pa.map_(TEXT, pa.int64()), lambda record: sorted(record.counts.items())),
}
BATCH_COLUMNS = {name: type_ for name, (type_, _) in _BATCHES.items()}


LETTER_COLUMNS = {
    "message_id": TEXT,
    "type": TEXT,
    "body": TEXT,
    "sequence": pa.int64(),
    "enqueued_at": TIME,
    "headers": pa.map_(TEXT, TEXT),
    "business_id": TEXT,  # the sender's
    "handler": TEXT,
    "stream": TEXT,  # the business id of the stream in which the dead letter waits
    "letter": TEXT,
    "packed": pa.bool_(),  # whether the body is msgpack, in hexadecimal
    "reason": TEXT,
    "error": TEXT,
    "version": pa.int64(),
    "batch": TEXT,
    "refused_at": TIME,
    "tries": pa.int64(),
    "parks": pa.bool_(),
    "behind": TEXT,
}


async def _letter_rows(table: Table, query: StreamQuery) -> AsyncIterator[tuple[Mapping[str, Any], int]]:
    selection = Selection(handler=query.handler)
    if query.handler is not None and query.business_id is not None:
        selection = Selection(stream=(query.handler, query.business_id))
    async for found in find_letters(table, selection):
        is_selected = query.handler is not None or query.business_id in {None, found.business_id}
        if is_selected and query.has(found.letter.refused_at):
            row = letter_row(found)
            yield row, len(row["body"] or "")


def letter_row(found: FoundLetter) -> Mapping[str, Any]:
    """Return the row of a dead letter. Lone surrogates, which Arrow cannot store, become question marks."""
    letter, described = found.letter, describe_letter(found)
    enqueued_at = letter.enqueued_at
    row = {name: _text(described[name]) for name in LETTER_COLUMNS}
    headers = described["headers"] or {}
    return row | {
        # The body that Python code sends may have any type.
        "body": row["body"] if isinstance(row["body"], str | None) else json.dumps(row["body"], default=str),
        "enqueued_at": enqueued_at if enqueued_at is not None and is_in_calendar(enqueued_at) else None,
        "refused_at": letter.refused_at,
        "headers": [(_text(str(name)), _text(str(value))) for name, value in headers.items()],
    }


def _text(value: Any) -> Any:  # noqa: ANN401 - text is changed, anything else is not
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value


class TableKind(StrEnum):
    """The kinds of tables that can be read."""

    STATE = "state"
    VERSIONS = "versions"
    BATCHES = "batches"
    LETTERS = "letters"


@dataclass(frozen=True, slots=True)
class Request:
    """A table to read, with its options."""

    kind: TableKind
    query: StreamQuery = field(default_factory=StreamQuery)
    as_of: int | None = None  # only for states; in microseconds since 1970 UTC
    batch_id: str | None = None  # only for states
    change_feed: bool = False  # only for versions
    change_start: str | None = None  # the id of the first batch of the change feed
    change_end: str | None = None  # the id of the last batch of the change feed
    app: App | None = None  # if given, states become structs of its models
    may_lack_handler: bool = False  # whether a handler that the table lacks has no rows, or is an error

    def __post_init__(self) -> None:
        if self.app is not None and not isinstance(self.app, App):
            raise UsageError(f"`app` must be an App, not {self.app!r}.")
        if self.as_of is not None and self.batch_id is not None:
            raise UsageError("States can be read as of a time or a batch, not both. Omit one of them.")
        since, until = self.query.since, self.query.until
        if since is not None and until is not None and since > until:
            raise UsageError("The range of times is empty, as `since` is after `until`. Swap them.")
        if not self.change_feed and (self.change_start, self.change_end) != (None, None):
            raise UsageError("The start and end of a change feed need the option read_change_feed.")

    @property
    def all_columns(self) -> Columns:
        """All columns of the table. Raises `UsageError` for an app without a handler."""
        match self.kind:
            case TableKind.STATE:
                return versions.columns_of_states(model_of(self.app, self.query.handler))
            case TableKind.VERSIONS:
                model = model_of(self.app, self.query.handler)
                return versions.columns_of_versions(model, is_feed=self.change_feed)
            case TableKind.BATCHES:
                return BATCH_COLUMNS
            case TableKind.LETTERS:
                return LETTER_COLUMNS

    @property
    def columns(self) -> Columns:
        """The selected columns. Raises `UsageError` for an unknown column."""
        return chosen(self.all_columns, self.query.columns)

    @property
    def schema(self) -> pa.Schema:
        """The selected columns as an Arrow schema."""
        return pa.schema(list(self.columns.items()))

    def with_columns(self, names: Sequence[str]) -> Request:
        """Return this request with other columns. Raises `UsageError` for an unknown column."""
        chosen(self.all_columns, names)
        return replace(self, query=replace(self.query, columns=tuple(names)))

    async def batches(self, table: Table, keys: KeyRange = ALL) -> AsyncIterator[pa.RecordBatch]:
        """Yield the requested rows of the streams in a range. Raises `UsageError` if the table lacks the handler."""
        rows, handler = 0, self.query.handler
        with error_location(table):
            async for batch in await self._source(table, keys):
                rows += len(batch)
                yield batch
            is_known = rows or handler is None or self.may_lack_handler
            owner = None if is_known else (await TableSettings.of(table)).owner
            if owner is not None and handler not in owner.handlers:
                names = ", ".join(sorted(owner.handlers))
                raise UsageError(f"The table has no handler {handler}. Choose from {names}.")

    async def _source(self, table: Table, keys: KeyRange) -> AsyncIterator[pa.RecordBatch]:
        query, columns = self.query, self.columns
        match self.kind:
            case TableKind.STATE:
                point: versions.AsOf | None = None if self.as_of is None else versions.AsOfTime(self.as_of)
                if self.batch_id is not None:
                    point = await versions.end_of_batch(table, self.batch_id)
                return versions.states(table, query, point, keys, model_of(self.app, query.handler))
            case TableKind.VERSIONS:
                feed = None
                if self.change_feed:
                    feed = await versions.change_feed(table, self.change_start, self.change_end)
                model = model_of(self.app, query.handler)
                return versions.versions(table, query, keys, feed=feed, model=model)
            case TableKind.BATCHES:
                rows = (
                    ({name: value_of(record) for name, (_, value_of) in _BATCHES.items()}, len(record.input))
                    async for record in records(table)
                )
                return in_batches(columns, rows)
            case TableKind.LETTERS:
                return in_batches(columns, _letter_rows(table, query))


Time = datetime | str  # text in ISO 8601


def moment(value: Time | None) -> int | None:
    """Convert a time, UTC if without a zone, to microseconds since 1970 UTC. Raises `UsageError` for invalid text."""
    if value is None:
        return None
    try:
        read = value if isinstance(value, datetime) else datetime.fromisoformat(value)
    except (ValueError, TypeError) as error:
        raise UsageError(
            f"{value!r} is not a valid time. Use a datetime, or text such as 2026-03-01T12:00:00Z."
        ) from error
    return to_microseconds(read.replace(tzinfo=UTC) if read.tzinfo is None else read)


def read_state(
    store: str,
    table: str,
    *,
    handler: str | None = None,
    business_id: str | None = None,
    as_of: Time | None = None,
    batch_id: str | None = None,
    columns: Sequence[str] | None = None,
    app: App | None = None,
) -> pa.Table:
    """Read the newest state of each stream, or its state as of a time or the end of the batch `batch_id`.

    `store` is a URL. `handler` and `business_id` select streams, `columns` selects columns (docs/tables.md). With `app`
    and `handler`, the column `state` is a struct with the fields of the model. Raises `UsageError`
    for invalid arguments, `TableNotFoundError` for a missing table, and `StoredDataError` for a corrupt stream.
    """
    query = StreamQuery(handler, business_id, columns=columns)
    return read(store, table, Request(TableKind.STATE, query, moment(as_of), batch_id, app=app))


def read_versions(
    store: str,
    table: str,
    *,
    handler: str | None = None,
    business_id: str | None = None,
    since: Time | None = None,
    until: Time | None = None,
    read_change_feed: bool = False,
    change_start_batch_id: str | None = None,
    change_end_batch_id: str | None = None,
    columns: Sequence[str] | None = None,
    app: App | None = None,
) -> pa.Table:
    """Read all stored versions, the versions made from `since` to `until` (inclusive), or the change feed of batches.

    `read_change_feed`: read the state changes from a start batch to an end batch, both included. By default, these are
    the first and the newest batch. The other parameters and the errors are those of `read_state`. If `columns` has only
    columns of the run index (docs/tables.md), reading takes a fraction of the time.
    """
    query = StreamQuery(handler, business_id, moment(since), moment(until), columns)
    feed = (read_change_feed, change_start_batch_id, change_end_batch_id)
    return read(store, table, Request(TableKind.VERSIONS, query, None, None, *feed, app=app))


def read_batches(store: str, table: str, *, columns: Sequence[str] | None = None) -> pa.Table:
    """Read the ledger of a table. Returns one row for each batch."""
    return read(store, table, Request(TableKind.BATCHES, StreamQuery(columns=columns)))


def read_letters(
    store: str,
    table: str,
    *,
    handler: str | None = None,
    business_id: str | None = None,
    columns: Sequence[str] | None = None,
) -> pa.Table:
    """Read the waiting dead letters: all, or those of a handler or business id."""
    return read(store, table, Request(TableKind.LETTERS, StreamQuery(handler, business_id, columns=columns)))


def read(store: str, table: str, request: Request) -> pa.Table:
    """Read the requested columns and rows of a table."""
    return pa.Table.from_batches(scan(store, table, request), request.schema)


def scan(store: str, table: str, request: Request, keys: KeyRange = ALL) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the streams in a range, in record batches of about 10,000 rows or 8 MiB of states."""
    with _open(store) as opened:
        yield from opened.give(request.batches(opened.table(table, make=False), keys))


def split(store: str, table: str, request: Request, parts: int) -> Sequence[KeyRange]:
    """Split a table into at most `parts` ranges to read in parallel. Costs one request for every 1,000 streams."""
    with _open(store) as opened:
        opened_table = opened.table(table, make=False)
        if request.query.keys is not None or request.kind not in {TableKind.STATE, TableKind.VERSIONS}:
            return [ALL]
        return opened.split_streams(opened_table, parts, request.query.prefix)


def _open(store: str) -> BlockingStore:
    from eventstore.sync import BlockingStore  # noqa: PLC0415 - slow to import, and unused by most workers

    return BlockingStore(store)
