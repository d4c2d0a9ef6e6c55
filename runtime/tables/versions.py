"""States and versions as tables, with time travel and change feeds."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from eventstore import PAGE_SIZE, KeyRange, Partition, Stream, Table
from runtime.clock import system_clock, to_microseconds
from runtime.errors import UsageError
from runtime.ledger.ledger import BatchRecord, Ledger
from runtime.retries import RetryPolicy, until_undisturbed
from runtime.tables import streams
from runtime.tables.columns import TEXT, TIME, Buffer, Columns, StateColumns, as_json, chosen, in_batches
from runtime.tables.streams import ALL, COLUMNS, Part, StreamQuery, parts_of
from runtime.versions.head import HEAD_PROPERTIES, Head
from runtime.versions.properties import reading
from runtime.versions.run import RUN_PROPERTIES, Commit, Run
from runtime.versions.stream import StreamHead


@dataclass(frozen=True, slots=True)
class AsOfTime:
    """A point in history: the versions made up to a time, in microseconds since 1970 UTC."""

    ended: int

    def has_newest(self, head: Head) -> bool:
        """Return whether this point in history includes the newest version of a stream."""
        return head.last_now <= self.ended

    def last(self, run: Run) -> int | None:
        """Return the position of the last included version of a run, or None if no version is included."""
        count = bisect_right(run.versions.nows, self.ended)
        return count - 1 if count else None


@dataclass(frozen=True, slots=True)
class AsOfBatch:
    """A point in history: the versions of a batch and of all batches that began before it."""

    name: str
    number: int
    ended: int  # in microseconds since 1970 UTC

    def has(self, commit: Commit) -> bool:
        """Return whether a commit is included."""
        if commit.number is not None:
            return commit.number <= self.number
        # Versions of single messages may have no batch number.
        return commit.batch == self.name or commit.written_at <= self.ended

    def has_newest(self, head: Head) -> bool:
        """Return whether this point includes the newest version. False if there is no tail: only the runs tell then."""
        return head.tail is not None and self.has(head.tail.segments[-1].commit)

    def last(self, run: Run) -> int | None:
        """Return the position of the last included version of a run, or None if no version is included."""
        end = len(run.versions)
        for commit in reversed(run.commits):
            if self.has(commit):
                return end - 1
            end -= commit.length
        return None


AsOf = AsOfTime | AsOfBatch


async def end_of_batch(table: Table, batch_id: str) -> AsOfBatch:
    """Return a batch's end as a point in history. Costs a request. Raises `BatchRefusedError` for an unknown id."""
    record = await Ledger(table, system_clock).get(batch_id)
    return AsOfBatch(record.batch_id, record.number, to_microseconds(record.updated_at))


INSERT, UPDATE, SNAPSHOT = "insert", "update", "snapshot"


@dataclass(frozen=True, slots=True)
class ChangeFeed:
    """State changes that were committed between two batches, inclusive.

    Applying all changes up to the end of a batch, in the order of versions, gives the states as of that batch. The feed
    of a truncated stream begins with a snapshot.
    """

    start: BatchRecord | None = None  # None: from the first batch on
    end: AsOfBatch | None = None  # None: up to the newest batch

    def has(self, commit: Commit) -> bool:
        """Return whether a commit belongs to one of the batches."""
        start, has_begun = self.start, True
        if start is not None and commit.number is not None:
            has_begun = commit.number >= start.number
        elif start is not None:
            has_begun = (
                start.batch_id == commit.batch or to_microseconds(start.started_at) <= commit.written_at
            )
        return has_begun and (self.end is None or self.end.has(commit))

    def positions(self, part: Part, positions: Sequence[int]) -> Sequence[int]:
        """Return those of `positions` whose versions are in the feed: they changed the state, in one of its batches."""
        afters, commits = part.run.versions.afters, part.commits
        return [
            position
            for position in positions
            if (afters[position] is not None or part.first + position == 1) and self.has(commits[position])
        ]

    def snapshot(self, part: Part) -> Mapping[str, Any] | None:
        """Return the row of a truncated stream's state before its first `part`, or None if the feed has no snapshot."""
        is_known = self.end is None or self.end.has(part.commits[0])
        if part.first == 1 or self.start is not None or not is_known:
            return None
        state = part.run.before
        return {
            "change_type": SNAPSHOT,
            "handler": part.stream.handler,
            "business_id": part.stream.business_id,
            "version": part.first - 1,
            "schema": part.run.schema,
            "changed": True,
            "after": state,
        }


async def change_feed(table: Table, start: str | None, end: str | None) -> ChangeFeed:
    """Return the feed from one batch to another, inclusive. `None` stands for the first or the newest batch.

    Costs one request for each. Raises `BatchRefusedError` if there is no such batch, and `UsageError` if `end` began
    before `start`.
    """
    first = None if start is None else await Ledger(table, system_clock).get(start)
    last = None if end is None else await end_of_batch(table, end)
    if first is not None and last is not None and first.number > last.number:
        raise UsageError(f"The change feed ends with batch {end}, which began before {start}: swap them.")
    return ChangeFeed(first, last)


STATE_COLUMNS = {
    "handler": TEXT,
    "business_id": TEXT,
    "version": pa.int64(),  # 0 if the stream was forgotten, or has only dead letters
    "state": TEXT,
    "now": TIME,
    "schema": pa.int32(),
    "kept_from": pa.int64(),
    "known_from": TIME,  # of the first stored version, if that is after `as_of`. Then version and state are null.
    "horizon": TIME,
    "undated_cut": pa.bool_(),
    "letters": pa.int32(),
    "forgotten": TIME,
}


def columns_of_states(model: StateColumns = as_json) -> Columns:
    """Return all columns of states. `model` converts the states."""
    return {**STATE_COLUMNS, "state": model.type}


async def states(
    table: Table,
    query: StreamQuery,
    as_of: AsOf | None = None,
    keys: KeyRange = ALL,
    model: StateColumns = as_json,
) -> AsyncIterator[pa.RecordBatch]:
    """Yield the states of the streams in a range: the newest, or those at the point `as_of`.

    Costs one request for every 1,000 streams, and one per state that does not fit the header. Streams that changed
    after `as_of` are read by `parts_of`, at its cost.
    """
    columns = chosen(columns_of_states(model), query.columns)

    async def rows() -> AsyncIterator[tuple[Mapping[str, Any], int]]:
        async for row in _rows(table, query, as_of, keys, with_state="state" in columns):
            if row["now"] is not None and not query.has(row["now"]):
                continue
            with reading("", stream=f"{row['handler']}-{row['business_id']}"):
                (state,) = model.read(row["schema"], [row["state"]])
            yield {**row, "state": state}, len(row["state"] or b"")

    async for batch in in_batches(columns, rows()):
        yield batch


async def _rows(
    table: Table, query: StreamQuery, as_of: AsOf | None, keys: KeyRange, *, with_state: bool
) -> AsyncIterator[Mapping[str, Any]]:
    in_runs: list[str] = []
    async for stream in streams.heads_of(table, query, keys):
        if as_of is None or as_of.has_newest(stream.head):
            yield await _newest(table, stream, with_state=with_state)
            continue
        past = _Past(stream, as_of)
        if stream.head.tail is not None:
            past.add(stream.head.tail.run())
        if past.found or not stream.has_events:
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
    async for part in parts_of(table, keys, RUN_PROPERTIES):
        if past is not None and past.stream.key != part.stream.key:
            for row in past.rows():
                yield row
            past = None
        past = past or _Past(part.stream, as_of)
        past.add(part.run)
    for row in past.rows() if past is not None else ():
        yield row


class _Past:
    """Finds the state of a stream at a point in history. The runs must be added oldest first."""

    def __init__(self, stream: StreamHead, as_of: AsOf) -> None:
        self.stream = stream
        self._as_of = as_of
        self._known_from: int | None = None
        self.found: Mapping[str, Any] | None = None

    def add(self, run: Run) -> None:
        if self._known_from is None:
            self._known_from = run.versions.nows[0]
        last = self._as_of.last(run)
        if last is not None:
            self.found = {
                "version": run.first + last,
                "state": run.versions[: last + 1].after(run.before),
                "now": run.versions.nows[last],
                "schema": run.schema,
            }

    def rows(self) -> Sequence[Mapping[str, Any]]:
        """Return the stream's row in a list, which is empty if the stream did not exist at that point in history."""
        head = self.stream.head
        if self.found is not None:
            return [_facts(self.stream, **self.found)]
        if head.tombstone is not None and head.tombstone.at <= self._as_of.ended:
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
        # The state is too large for the header, so it is in the newest run or the tail.
        partition = Partition.exact(table, stream.key)
        read = partial(Stream.read_last, partition, select=RUN_PROPERTIES, header=HEAD_PROPERTIES)
        last = await until_undisturbed(RetryPolicy().beside(table), read)
        stream = streams.head_of_stream(last.stream)
        head = stream.head
        run = Part(stream, last.events[-1] if head.tail is None else None).run
        state, schema = run.after, run.schema
    return _facts(stream, version=head.versions, state=state, now=head.last_now, schema=schema)


def _facts(stream: StreamHead, **state: Any) -> Mapping[str, Any]:  # noqa: ANN401 - the values of some columns
    head = stream.head
    return {
        **dict.fromkeys(STATE_COLUMNS),
        "handler": stream.handler,
        "business_id": stream.business_id,
        "kept_from": head.kept_from,
        "horizon": head.horizon,
        "undated_cut": head.undated_cut,
        "letters": head.waiting.count,
        "forgotten": head.tombstone.at if head.tombstone else None,
        **state,
    }


def columns_of_versions(model: StateColumns = as_json, *, is_feed: bool = False) -> Columns:
    """Return all columns of versions or, if `is_feed`, of a change feed. `model` converts the states."""
    columns = {name: model.type if name in streams.STATES else each.type for name, each in COLUMNS.items()}
    return {"change_type": TEXT, **columns} if is_feed else columns


async def versions(
    table: Table,
    query: StreamQuery,
    keys: KeyRange = ALL,
    *,
    feed: ChangeFeed | None = None,
    model: StateColumns = as_json,
) -> AsyncIterator[pa.RecordBatch]:
    """Yield the versions of the streams in a range, or only those in `feed`.

    Costs one request for every 1,000 rows or 4 MiB. With `query.since`, costs one request for every 1,000 streams, and
    streams that changed since then are read by `parts_of`, at its cost.
    """
    columns = chosen(columns_of_versions(model, is_feed=feed is not None), query.columns)
    reader = _Reader(columns, query, feed, model)
    if query.keys is not None:
        parts = parts_of(table, query.keys, reader.select)
    elif query.since is None and query.business_id is None:
        parts = streams.parts_in(table, query.within(keys), reader.select)
    else:
        parts = _parts_since(table, query, keys, reader.select)
    async for part in parts:
        for batch in reader.add(part):
            yield batch
    if reader.buffer.rows:
        yield reader.buffer.take()


async def _parts_since(
    table: Table, query: StreamQuery, keys: KeyRange, select: Sequence[str]
) -> AsyncIterator[Part]:
    in_runs: list[str] = []
    async for stream in streams.heads_of(table, query, keys):
        if query.since is not None and stream.head.last_now < query.since:
            continue
        tail = stream.head.tail
        if tail is not None and (
            not stream.has_events or (query.since is not None and tail.run().versions.nows[0] < query.since)
        ):
            yield Part(stream)  # the tail has all selected versions
        elif stream.has_events:
            in_runs.append(stream.key)
        if len(in_runs) == PAGE_SIZE:
            async for part in parts_of(table, in_runs, select):
                yield part
            in_runs = []
    if in_runs:
        async for part in parts_of(table, in_runs, select):
            yield part


@dataclass(eq=False)
class _Reader:
    """Collects the selected versions of parts into record batches."""

    columns: Columns
    query: StreamQuery
    feed: ChangeFeed | None
    model: StateColumns

    def __post_init__(self) -> None:
        self.buffer = Buffer(self.columns, ids="message_id")
        self._has_time = self.query.since is not None or self.query.until is not None
        self._states = len(streams.STATES & set(self.columns))
        self._values = {name: COLUMNS[name].values for name in self.columns if name in COLUMNS}
        self._key: str | None = None

    @property
    def select(self) -> Sequence[str]:
        """The properties of runs that the columns and filters need."""
        needed = [COLUMNS[name].needs for name in self.columns if name in COLUMNS]
        if self._has_time or self.feed is not None:
            needed.append(COLUMNS["now"].needs)
        return list(dict.fromkeys(name for names in (COLUMNS["version"].needs, *needed) for name in names))

    def add(self, part: Part) -> Iterator[pa.RecordBatch]:
        """Add the selected versions of a part, and yield record batches that are full."""
        is_first, self._key = part.stream.key != self._key, part.stream.key
        with reading("", part.row_key, part.stream.key):
            if is_first and self.feed is not None and not self._has_time:
                snapshot = self.feed.snapshot(part)
                if snapshot is not None:
                    row = {name: [snapshot.get(name)] for name in self.columns}
                    if "after" in row:
                        row["after"] = [*self.model.read(part.run.schema, row["after"])]
                    yield from self._put(row, 1, len(part.run.before))
            yield from self._put_each(part)

    def _put_each(self, part: Part) -> Iterator[pa.RecordBatch]:
        positions: Sequence[int] = range(part.count)
        if self._has_time:
            nows = part.run.versions.nows
            positions = [position for position in positions if self.query.has(nows[position])]
        if self.feed is not None:
            positions = self.feed.positions(part, positions)
        if not positions:
            return
        values = {name: values_of(part) for name, values_of in self._values.items()}
        if self.feed is not None:
            numbers = range(part.first, part.first + part.count)
            values["change_type"] = [INSERT if number == 1 else UPDATE for number in numbers]
        if self._states:
            states = self.model.read(part.run.schema, part.states)
            values |= {"before": states[:-1], "after": states[1:]}
        if len(positions) < part.count:
            values = {name: [each[position] for position in positions] for name, each in values.items()}
        largest = self._states * max(map(len, part.states)) if self._states else 0
        yield from self._put(values, len(positions), largest)

    def _put(self, values: Mapping[str, Sequence[Any]], count: int, largest: int) -> Iterator[pa.RecordBatch]:
        """Add `count` rows, each with at most `largest` bytes of states, and yield record batches that are full."""
        step = max(1, Buffer.MAX_BYTES // largest) if largest else max(1, count)
        for start in range(0, count, step):
            end = min(start + step, count)
            some = values if step >= count else {name: each[start:end] for name, each in values.items()}
            self.buffer.add(some, end - start, (end - start) * largest)
            if self.buffer.is_full:
                yield self.buffer.take()
