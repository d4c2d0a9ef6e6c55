"""States as a table: a row for each stream, with its newest state, or that as of a time or batch."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from eventstore import PAGE_SIZE, KeyRange, Partition, Stream, Table
from runtime.errors import StoredDataError
from runtime.retries import RetryPolicy, until_undisturbed
from runtime.storage.head import HEAD_PROPERTIES
from runtime.storage.run import Run
from runtime.tables.as_of import AsOf
from runtime.tables.columns import TEXT, TIME, Buffer, Columns, chosen
from runtime.tables.models import StateColumns, as_json
from runtime.tables.streams import RUN, StreamHead, head_of_stream, parts_of, run_of
from runtime.tables.wanted import ALL, Wanted, heads_of

STATE_COLUMNS = {
    "handler": TEXT,
    "business_id": TEXT,
    "version": pa.int64(),
    "state": TEXT,
    "now": TIME,
    "schema": pa.int32(),
    "kept_from": pa.int64(),
    "known_from": TIME,
    "horizon": TIME,
    "letters": pa.int32(),
    "forgotten": TIME,
}
"""A stream that has letters only, or was forgotten, has version 0 and no state.

As of a time before the first version that is kept, a stream is known to be there and no more: its version and state are
null, and `known_from` is when that version was made.
"""

_UNKNOWN: Mapping[str, Any] = {"version": None, "state": None, "now": None, "schema": None}


def columns_of_states(model: StateColumns = as_json) -> Columns:
    """Return all columns of states."""
    return {**STATE_COLUMNS, "state": model.type}


async def states(
    table: Table,
    wanted: Wanted,
    as_of: AsOf | None = None,
    keys: KeyRange = ALL,
    model: StateColumns = as_json,
) -> AsyncIterator[pa.RecordBatch]:
    """Give the states of the streams in a range.

    The newest states cost a request for each 1,000 streams, and one more for each state that is too large for a header.
    As of a time or batch, streams that were changed since cost what `parts_of` says, unless their tail tells it.
    """
    columns = chosen(columns_of_states(model), wanted.columns)
    buffer = Buffer(columns)
    async for row in _rows(table, wanted, as_of, keys, with_state="state" in columns):
        if row["now"] is None or wanted.has(row["now"]):
            values = {**row, "state": _shown(row, model)}
            buffer.add({name: [values[name]] for name in columns}, 1, len(row["state"] or b""))
        if buffer.is_full:
            yield buffer.take()
    if buffer.rows:
        yield buffer.take()


def _shown(row: Mapping[str, Any], model: StateColumns) -> Any:  # noqa: ANN401 - a text or a struct
    try:
        return model.read(row["schema"], [row["state"]])[0]
    except StoredDataError as error:
        key = f"{row['handler']}-{row['business_id']}"
        raise StoredDataError(f"The stream {key} cannot be read: {error}") from error


async def _rows(
    table: Table, wanted: Wanted, as_of: AsOf | None, keys: KeyRange, *, with_state: bool
) -> AsyncIterator[Mapping[str, Any]]:
    in_runs: list[str] = []
    async for stream in heads_of(table, wanted, keys):
        if as_of is None or as_of.has_newest(stream.head):
            yield await _newest(table, stream, with_state=with_state)
            continue
        past = _Past(stream, as_of)
        if stream.head.tail is not None:
            past.add(stream.head.tail.run())
        if past.is_found or not stream.newest_event:
            for row in past.rows():
                yield row
        else:
            in_runs.append(stream.key)
        if len(in_runs) == PAGE_SIZE:
            async for row in _in_runs(table, in_runs, as_of):
                yield row
            in_runs = []
    if as_of is not None and in_runs:
        async for row in _in_runs(table, in_runs, as_of):
            yield row


async def _in_runs(table: Table, keys: Sequence[str], as_of: AsOf) -> AsyncIterator[Mapping[str, Any]]:
    past: _Past | None = None
    async for stream, event in parts_of(table, keys, RUN):
        if past is not None and past.stream.key != stream.key:
            for row in past.rows():
                yield row
            past = None
        past = past or _Past(stream, as_of)
        past.add(run_of(stream, event))
    for row in past.rows() if past is not None else ():
        yield row


class _Past:
    """A stream as of a time or batch, of which runs are added from the oldest on."""

    def __init__(self, stream: StreamHead, as_of: AsOf) -> None:
        self.stream = stream
        self._as_of = as_of
        self._known_from: int | None = None
        self._found: Mapping[str, Any] | None = None

    @property
    def is_found(self) -> bool:
        """Whether a version was there among those that were added."""
        return self._found is not None

    def add(self, run: Run) -> None:
        """Add the next run."""
        if self._known_from is None:
            self._known_from = run.versions.nows[0]
        last = self._as_of.last(run)
        if last is not None:
            self._found = {
                "version": run.first + last,
                "state": run.versions[: last + 1].after(run.before),
                "now": run.versions.nows[last],
                "schema": run.schema,
            }

    def rows(self) -> Sequence[Mapping[str, Any]]:
        """Return the row of the stream; none when it is known that it was not there yet."""
        head = self.stream.head
        if self._found is not None:
            return [_facts(self.stream, **self._found)]
        if head.tombstone is not None and self._as_of.has_time(head.tombstone.at):
            return [_facts(self.stream, version=0)]
        if head.kept_from == 1 and head.tombstone is None:
            return []
        known_from = self._known_from
        if known_from is None and head.tombstone is not None:
            known_from = head.tombstone.at
        return [_facts(self.stream, known_from=known_from)]


async def _newest(table: Table, stream: StreamHead, *, with_state: bool) -> Mapping[str, Any]:
    head = stream.head
    if not head.versions:
        return _facts(stream, version=0)
    state, schema = head.state, head.schema
    if state is None and with_state:
        read = partial(_with_newest_run, table, stream.key)
        stream, run = await until_undisturbed(RetryPolicy().beside(table), read)
        head, state, schema = stream.head, run.after, run.schema
    return _facts(stream, version=head.versions, state=state, now=head.last_now, schema=schema)


async def _with_newest_run(table: Table, key: str) -> tuple[StreamHead, Run]:
    """Read a stream whose state is too large for its header, with its newest run. Two requests."""
    found = await Stream.read_last(Partition.exact(table, key), select=RUN, header=HEAD_PROPERTIES)
    stream = head_of_stream(found.stream)
    tail = stream.head.tail
    return stream, tail.run() if tail is not None else run_of(stream, found.events[-1])


def _facts(stream: StreamHead, **state: Any) -> Mapping[str, Any]:  # noqa: ANN401 - the values of some columns
    """Return the row of a stream with what is known of its state."""
    head = stream.head
    return {
        "handler": stream.handler,
        "business_id": stream.business_id,
        "kept_from": head.kept_from,
        "known_from": None,
        "horizon": head.horizon,
        "letters": head.waiting.count,
        "forgotten": head.tombstone.at if head.tombstone else None,
        **_UNKNOWN,
        **state,
    }
