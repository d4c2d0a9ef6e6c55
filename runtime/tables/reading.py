"""A store read as tables of Arrow, without Spark: whole, or batch after batch with memory that does not grow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import pyarrow as pa

from eventstore import KeyRange
from handlers import App
from runtime.errors import UsageError
from runtime.messages.envelope import Envelope
from runtime.tables.outputs import outputs_by
from runtime.tables.requests import Kind, Request, moment
from runtime.tables.wanted import ALL, Wanted

if TYPE_CHECKING:
    from eventstore.blocking import BlockingStore

Time = datetime | str
"""A time; text is ISO 8601."""


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
    """Read the newest state of each stream, or those as of a time or the end of a batch.

    `store` is a url, `columns` names those of `STATE_COLUMNS` that are read. With an `app` and a handler, `state` is a
    struct with the fields of the model. Raises `UsageError`, `TableNotFoundError`, and `StoredDataError` for a stream
    that cannot be read.
    """
    wanted = Wanted(handler, business_id, columns=_names(columns))
    return read(store, table, Request(Kind.STATE, wanted, moment(as_of), batch_id, app=app))


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
    with_outputs: Iterable[Envelope] | None = None,
) -> pa.Table:
    """Read the versions that are kept, those made between two times, or what batches have changed.

    `columns` names those of `decoding.COLUMNS` that are read: few columns of the index take a fraction of the time.
    `with_outputs`, with an app and a handler, are the messages of a log: a column `outputs` has what their versions
    have published, found by replay, and null where the message is not among them or replay gives something else. They
    are held in memory. Raises what `read_state` does.
    """
    wanted = Wanted(handler, business_id, moment(since), moment(until), _names(columns))
    feed = (read_change_feed, change_start_batch_id, change_end_batch_id)
    outputs = None if with_outputs is None else outputs_by(app, handler, with_outputs)
    return read(store, table, Request(Kind.VERSIONS, wanted, None, None, *feed, app=app, outputs=outputs))


def read_batches(store: str, table: str, *, columns: Sequence[str] | None = None) -> pa.Table:
    """Read the ledger: a row for each batch."""
    return read(store, table, Request(Kind.BATCHES, Wanted(columns=_names(columns))))


def read_letters(
    store: str,
    table: str,
    *,
    handler: str | None = None,
    business_id: str | None = None,
    columns: Sequence[str] | None = None,
) -> pa.Table:
    """Read the letters that wait: a row for each, as `consistent letters` lists them."""
    return read(store, table, Request(Kind.LETTERS, Wanted(handler, business_id, columns=_names(columns))))


def read(store: str, table: str, request: Request) -> pa.Table:
    """Read all that is asked for."""
    return pa.Table.from_batches(scan(store, table, request), request.schema)


def scan(store: str, table: str, request: Request, keys: KeyRange = ALL) -> Iterator[pa.RecordBatch]:
    """Give what is asked for of a range of streams, in record batches of some ten thousand rows or 8 MiB of states."""
    with _open(store) as opened:
        yield from opened.give(request.batches(opened.table(table, make=False), keys))


def split(store: str, table: str, request: Request, parts: int) -> Sequence[KeyRange]:
    """Return at most so many ranges of streams to be read apart: one for what is not read by streams.

    Reads the keys of all streams of the handler: a request for each 1,000.
    """
    wanted = request.wanted
    with _open(store) as opened:
        states = opened.table(table, make=False)
        if wanted.keys is not None or request.kind not in {Kind.STATE, Kind.VERSIONS}:
            return [ALL]
        return opened.split_streams(states, parts, wanted.prefix)


def _open(store: str) -> BlockingStore:
    from eventstore.blocking import BlockingStore  # noqa: PLC0415 - takes time, and most workers read no tables

    return BlockingStore(store)


def _names(columns: Sequence[str] | None) -> tuple[str, ...] | None:
    if isinstance(columns, str):
        raise UsageError(f"The columns are to be a list of names, such as [{columns!r}].")
    return None if columns is None else tuple(columns)
