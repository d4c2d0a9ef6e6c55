"""What the workers of a batch are told, and the fold of one partition that they run.

Everything here is pickled and sent to Spark's Python workers. A worker keeps one connection to the store, and for a
store on the network one event loop, as long as it lives.
"""

from __future__ import annotations

import gc
import json
import os
import threading
from collections.abc import Collection, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from eventstore import Table
from handlers import App
from runtime.algorithms.choice import (
    AlgorithmName,
    BatchAlgorithm,
    Dependencies,
    make_batch_algorithms,
    make_outboxes,
)
from runtime.batch_options import TablePlace, Wrap
from runtime.clock import Clock, system_clock
from runtime.dead_letters import TableLetters
from runtime.documents.store import open_documents
from runtime.errors import StoredDataError
from runtime.ledger.batch import NOTHING, BatchContext
from runtime.messages.envelope import Envelope, Envelopes, id_key, unpack_envelope
from runtime.messages.limits import MessageLimits, size_of, size_of_headers
from runtime.messages.outcome import Outcome, Outcomes, Output, Reason, dead_letter
from runtime.messages.parsing import Delivery, not_allowed, prepare_all, unroutable
from runtime.spark.worker.connection import Buffer, ConcurrencyLimit, Connection, Wait, open_table
from runtime.spark.worker.outcomes import OutcomeWriter, to_arrow
from runtime.supervision import Watch, bounded_memory, supervised
from runtime.versions.properties import placed
from runtime.versions.stream import is_key

# Deliveries as they reach a worker: Arrow batches, cut into groups of one stream each.

MAX_DELIVERIES = 49_152
MAX_TEXT_BYTES = 32 * 2**20
DELIVERY_BYTES = 2048
"""What a delivery takes in memory beside its text, from when it is read until its outcome is written; measured."""

HARD_LIMIT = 2
"""How many times as large copies of its last message may make a group."""


@dataclass(slots=True)
class Group:
    """Deliveries of one stream in their order, each with what is wrong with its envelope, if anything is.

    `business_id` is the one that they were routed by; their envelopes have what the log names, if it does.

    A stream that is too long for one group makes several: `follows` says that the group before was of the same stream,
    `is_followed` that the next one is. In a redrive, `letters` are the numbers of the letters that the deliveries are.
    """

    handler: str | None
    business_id: str | None
    follows: bool = False
    is_followed: bool = False
    envelopes: Envelopes = field(default_factory=Envelopes)
    problems: list[str | None] = field(default_factory=list)
    text_bytes: int = 0
    letters: list[int] | None = None

    @property
    def size(self) -> int:
        """How many bytes it takes in memory, about."""
        return self.text_bytes + DELIVERY_BYTES * len(self.problems)

    def has_room(self, deliveries: int, text: int) -> bool:
        """Say whether so many more deliveries may be added, with so many bytes of text, one at a time."""
        return len(self.problems) + deliveries <= MAX_DELIVERIES and self.text_bytes + text <= MAX_TEXT_BYTES

    def has_room_for(self, message_id: str) -> bool:
        """Say whether another delivery may be added. Copies of a message stay together as far as that goes."""
        count = len(self.problems)
        if count < MAX_DELIVERIES and self.text_bytes < MAX_TEXT_BYTES:
            return True
        is_copy = self.envelopes.message_ids[-1] == message_id
        return (
            is_copy and count < HARD_LIMIT * MAX_DELIVERIES and self.text_bytes < HARD_LIMIT * MAX_TEXT_BYTES
        )


def groups(batches: Iterable[pa.RecordBatch]) -> Iterator[Group]:
    """Cut the sorted rows of a partition into groups; a stream that is very long gives several."""
    group: Group | None = None
    for batch in batches:
        rows = _Rows(batch)
        for first, end, handler, business_id in rows.stretches():
            if group is None or group.handler != handler or group.business_id != business_id:
                if group is not None:
                    yield group
                group = Group(handler, business_id)
            if group.has_room(end - first, rows.text_bytes(first, end)):
                rows.add_to(group, first, end)
                continue
            for row in range(first, end):
                if not group.has_room_for(rows.envelopes.message_ids[row]):
                    group.is_followed = True
                    yield group
                    group = Group(handler, business_id, follows=True)
                rows.add_to(group, row, row + 1)
    if group is not None:
        yield group


class _Rows:
    """The rows of an Arrow batch, column by column, with the bytes of text before each row and after the last."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        lines, bodies = batch.column("line"), batch.column("body")
        texts = bodies.to_pylist()
        if lines.null_count < len(lines):
            # What is no message keeps its line in place of a body: text, whatever the bodies are.
            pairs = zip(lines.to_pylist(), texts, strict=True)
            texts = [body if line is None else line for line, body in pairs]
        self._handlers = batch.column("handler")
        self._business_ids = batch.column("business_id")
        self.problems = _texts(batch.column("problem"))
        self.envelopes = Envelopes(
            batch.column("message_id").to_pylist(),
            _shared(batch.column("type")),
            texts,
            _texts(batch.column("given")),
            batch.column("sequence").to_pylist(),
            batch.column("enqueued_at").cast(pa.int64()).to_pylist(),
            _headers(batch.column("headers")),
        )
        text = pc.fill_null(pc.coalesce(pc.binary_length(lines), pc.binary_length(bodies)), 0)
        beside = pc.fill_null(pc.binary_length(batch.column("headers")), 0)
        self._text_before: list[int] = list(accumulate(pc.add(text, beside).to_pylist(), initial=0))

    def stretches(self) -> Iterator[tuple[int, int, str | None, str | None]]:
        """Give the first row of each stretch of one stream, the row after its last, handler and business id."""
        count = len(self.envelopes)
        if count == 0:
            return
        changes = pc.or_(_differ_from_next(self._handlers), _differ_from_next(self._business_ids))
        begins = [0, *(end + 1 for end in pc.indices_nonzero(changes).to_pylist())]
        handlers, business_ids = (
            column.take(pa.array(begins)).to_pylist() for column in (self._handlers, self._business_ids)
        )
        yield from zip(begins, [*begins[1:], count], handlers, business_ids, strict=True)

    def text_bytes(self, first: int, end: int) -> int:
        """Return the bytes of body and headers of some rows."""
        return self._text_before[end] - self._text_before[first]

    def add_to(self, group: Group, first: int, end: int) -> None:
        """Add some rows to a group."""
        added = self.envelopes[first:end]
        if group.problems:
            group.envelopes.extend(added)
        else:
            group.envelopes = added
        group.problems += self.problems[first:end]
        group.text_bytes += self.text_bytes(first, end)


def _differ_from_next(column: pa.Array) -> pa.Array:
    """Say for each value but the last whether the next one is another; null is a value here."""
    these, following = column[:-1], column[1:]
    differ = pc.fill_null(pc.not_equal(these, following), False)
    return pc.or_(differ, pc.xor(pc.is_null(these), pc.is_null(following))) if column.null_count else differ


def text_bytes(message: Envelope | Output) -> int:
    """Return the bytes of body and headers."""
    return size_of(message.body) + size_of_headers(message.headers)


def _texts(column: pa.Array) -> list[str | None]:
    """Return the values of a column that is empty in most logs."""
    return [None] * len(column) if column.null_count == len(column) else column.to_pylist()


def _shared(column: pa.Array) -> list[str]:
    """Return the values of a column that has few: equal ones are one object, made and hashed once."""
    if column.null_count:
        texts: list[str] = column.to_pylist()
        return texts
    encoded = column.dictionary_encode()
    values = encoded.dictionary.to_pylist()
    return [values[index] for index in encoded.indices.to_pylist()]


def _headers(column: pa.Array) -> list[Mapping[str, str] | None]:
    return [(json.loads(text) or None) if text else None for text in _texts(column)]


# Python's cyclic garbage collector in workers.
#
# Handling messages makes no reference cycles, but many objects that live for a while: the collector would
# traverse them, and all loaded modules, repeatedly, which takes a tenth of the time. It still runs, in case
# a handler makes cycles, only less often.

_NEW_OBJECTS = 50_000
"""How many new objects there are before the collector looks at them; Python's default is 700."""

_frozen: set[int] = set()


@contextmanager
def rare_collections() -> Iterator[None]:
    """Let the collector run rarely, and never over objects older than the first use in a process."""
    if os.getpid() not in _frozen:
        gc.collect()
        gc.freeze()
        _frozen.add(os.getpid())
    before = gc.get_threshold()
    gc.set_threshold(_NEW_OBJECTS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


# Letters as they reach a worker of a redrive: each the delivery as it was, in the order in which they are
# handled.

ARROW_REDRIVEN = pa.schema(
    [
        ("handler", pa.string()),
        ("business_id", pa.string()),
        ("letter", pa.int64()),
        ("sequence", pa.int64()),
        ("enqueued_at", pa.int64()),
        ("delivery", pa.binary()),
        ("problem", pa.string()),
        ("row", pa.string()),
        ("etag", pa.string()),
    ]
)
"""A letter that is redriven, to one handler.

`letter` is its number in its stream, and behind all of these for a letter of the table, which is in a `row`.
"""

BEHIND_ALL = 2**62


def letter_groups(batches: Iterable[pa.RecordBatch]) -> Iterator[Group]:
    """Cut the sorted letters of a partition into groups of one stream each."""
    group: Group | None = None
    letters: list[int] = []
    for row in (row for batch in batches for row in batch.to_pylist()):
        envelope = unpack_envelope(row["delivery"])
        size = text_bytes(envelope)
        place = (row["handler"], row["business_id"])
        if group is None or (group.handler, group.business_id) != place:
            if group is not None:
                yield group
            group = Group(*place, letters=(letters := []))
        elif not group.has_room(1, size):
            group.is_followed = True
            yield group
            group = Group(*place, follows=True, letters=(letters := []))
        group.envelopes.extend(Envelopes.of([envelope]))
        group.problems.append(row["problem"])
        letters.append(row["letter"])
        group.text_bytes += size
    if group is not None:
        yield group


# How handlers are supervised in a worker of Spark, which may be ended: its task is tried again in another
# one.


@dataclass(frozen=True, slots=True)
class Supervision:
    """How long a handler may take, in seconds, and how many bytes its worker may take."""

    seconds: float
    memory: int | None


@contextmanager
def supervising(app: App, how: Supervision | None) -> Iterator[App]:
    """Yield the app with its handlers under supervision."""
    if how is None or threading.current_thread() is not threading.main_thread():
        yield app
        return
    context = TaskContext.get()
    is_retry = context is not None and context.attemptNumber() > 0
    with bounded_memory(how.memory), Watch(how.seconds, is_retry=is_retry) as watch:
        yield supervised(app, watch)


class Opened(NamedTuple):
    """What a worker has when it begins: its connection, how many streams may be under way, what algorithms need."""

    connection: Connection
    concurrency: ConcurrencyLimit
    dependencies: Dependencies


@dataclass(frozen=True)
class FoldJob:
    """All that a worker needs to fold a partition of deliveries."""

    app: App
    store: str = field(repr=False)
    table: str
    batch: BatchContext
    clock: Clock = system_clock
    in_flight: int = 32
    """How many streams a worker works on at once at most: on the network fewer while the store answers slowly."""

    wrap: Wrap | None = None
    """Is put around each table, for example to count its requests or to inject faults."""

    algorithm: AlgorithmName = "state-based"
    deduplication_store: TablePlace | None = None
    """Where the ids are, None for the table of the states."""

    token_store: TablePlace | None = None
    """Where the tokens are, None for the table of the states."""

    types: Collection[str] | None = None
    """The message types that the log may hold, None for all."""

    supervision: Supervision | None = None
    """Bounds the time and memory of handlers; None does not."""

    documents: str | None = field(default=None, repr=False)
    """The url of the store of documents, None when there is none."""

    def open(self) -> Opened:
        """Return this worker's connection, with what the algorithm is made of."""
        connection = open_table(self.store, self.table, self.deduplication_store or self.token_store)
        concurrency = ConcurrencyLimit(self.in_flight)
        wrap = self.wrap or _unchanged
        other = connection.measured(wrap(connection.other), concurrency)
        dependencies = Dependencies(
            self.app,
            connection.measured(wrap(connection.table), concurrency),
            deduplication_store=other,
            token_store=other,
            clock=self.clock,
            batch=self.batch,
            documents=None if self.documents is None else open_documents(self.documents),
        )
        return Opened(connection, concurrency, dependencies)

    def fold(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Handle the deliveries of a partition, stream by stream, and give their outcomes."""
        return self._fold(groups(batches))

    def redrive(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Handle the letters of a partition, stream by stream, and give their outcomes."""
        return self._fold(letter_groups(batches))

    def finish(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Finish the messages of each entity that comes in: the second pass. Yield the number of entities."""
        connection, concurrency, dependencies = self.open()
        algorithms = make_outboxes(self.algorithm, dependencies)
        work = (
            algorithms[row["handler"]].finish(
                row["business_id"], list(map(id_key, sorted(row["message_ids"])))
            )
            for row in _rows(batches)
        )
        finished = sum(1 for _ in connection.run_all(work, concurrency))
        yield pa.RecordBatch.from_pydict({"entities": pa.array([finished], pa.int64())})

    def sweep(self, latest: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the outcomes of the unfinished messages of each entity that comes in.

        Single messages count when they were handled at `latest`, in microseconds, or before.
        """
        connection, concurrency, dependencies = self.open()
        algorithms = make_outboxes(self.algorithm, dependencies)
        work = (algorithms[row["handler"]].unfinished(row["business_id"], latest) for row in _rows(batches))
        for outcomes in connection.run_all(work, concurrency):
            yield to_arrow([Outcomes.of(outcomes)])

    def _fold(self, given: Iterable[Group]) -> Iterator[pa.RecordBatch]:
        with supervising(self.app, self.supervision) as app:
            yield from replace(self, app=app)._fold_supervised(given)  # noqa: SLF001 - its own

    def _fold_supervised(self, given: Iterable[Group]) -> Iterator[pa.RecordBatch]:
        connection, concurrency, dependencies = self.open()
        kit = _Kit(
            self.app,
            self.types,
            dependencies.table,
            make_batch_algorithms(self.algorithm, dependencies),
            TableLetters(dependencies.table, self.batch, self.clock, dependencies.retries),
            Buffer(),
            self.batch.limits,
        )
        writer = OutcomeWriter()
        with rare_collections():
            for outcomes in connection.run_all(_work(kit, given), concurrency):
                writer.add(outcomes)
                del outcomes  # or they would be kept while the next group is handled
                while writer.is_full:
                    yield writer.flush()
            yield writer.flush()


class _Kit(NamedTuple):
    """What a worker handles the streams of a partition with."""

    app: App
    types: Collection[str] | None
    table: Table
    algorithms: Mapping[str, BatchAlgorithm]
    letters: TableLetters
    buffer: Buffer
    limits: MessageLimits


def _work(kit: _Kit, given: Iterable[Group]) -> Iterator[Coroutine[Any, Any, Outcomes] | Wait]:
    """Give the work on each group. One that goes on with the stream of the group before waits for it."""
    stream = _Stream(kit)
    for group in given:
        if group.follows:
            yield Wait.FOR_ALL
        else:
            stream = _Stream(kit)
        yield from kit.buffer.admit(group.size)
        yield stream.process(group)
        del group  # or it would be kept while the next one is read


class _Stream:
    """Processes the groups of one stream, one after another: each is told what has been seen in those before."""

    def __init__(self, kit: _Kit) -> None:
        self._kit = kit
        self._seen = NOTHING

    async def process(self, group: Group) -> Outcomes:
        """Return the outcomes of a group."""
        outcomes = await self._outcomes(group)
        if outcomes.refused and not _has_stream(group):
            await self._kit.letters.keep(list(outcomes.refused.values()))
        if group.is_followed:
            self._seen = self._seen.between_groups(outcomes)
        self._kit.buffer.release(group.size)
        return outcomes

    async def _outcomes(self, group: Group) -> Outcomes:
        handler = self._kit.app.handlers.get(group.handler or "")
        types = self._kit.types
        if handler is None:
            rows = zip(group.envelopes, group.problems, strict=True)
            return Outcomes.of([unroutable(*row, group.handler, types) for row in rows])
        limits = self._kit.limits
        deliveries = prepare_all(handler, group.business_id, group.envelopes, limits, letters=group.letters)
        if group.business_id is None:
            found = [each for each in deliveries.messages if isinstance(each, Outcome)]
            return Outcomes.of([not_allowed(each.envelope, handler.name, types) or each for each in found])
        algorithm = self._kit.algorithms[handler.name]
        try:
            with placed(self._kit.table):
                return Outcomes.of(await algorithm.process(group.business_id, deliveries, self._seen))
        except StoredDataError as error:
            return Outcomes.of([_of_damaged(delivery, handler.name, error) for delivery in deliveries])


def _of_damaged(delivery: Delivery, handler: str, error: StoredDataError) -> Outcome:
    """Return the dead letter of a delivery to a stream that cannot be read: it is kept in the outcomes only."""
    if isinstance(delivery, Outcome):
        return delivery
    business_id = delivery.business_id
    return dead_letter(delivery.envelope, Reason.STREAM_DAMAGED, str(error), handler, business_id)


def _has_stream(group: Group) -> bool:
    return (
        group.handler is not None
        and group.business_id is not None
        and is_key(f"{group.handler}-{group.business_id}")
    )


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    for batch in batches:
        yield from batch.to_pylist()


def _unchanged(table: Table) -> Table:
    return table
