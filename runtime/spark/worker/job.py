"""The jobs of batch workers, which fold partitions of deliveries. They are pickled and sent to the workers."""

import gc
import json
import os
import threading
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from eventstore import Table
from handlers import App
from runtime.algorithms.choice import BatchAlgorithm, Dependencies, make_batch_algorithms, make_outboxes
from runtime.algorithms.state_based.algorithm import MAX_CHUNK_DELIVERIES, SMALL_DELIVERIES, StreamsTogether
from runtime.batch_options import BatchOptions, TablePlace
from runtime.dead_letters import TableLetters
from runtime.documents import open_documents
from runtime.errors import StoredDataError
from runtime.ledger.batch import NOTHING, BatchContext, Seen
from runtime.messages.envelope import Envelopes, id_key, unpack_envelope
from runtime.messages.outcome import Outcome, Outcomes, Reason, dead_letter
from runtime.messages.parsing import Deliveries, not_allowed, prepare_all, unroutable
from runtime.messages.sizes import MessageLimits, size_of, size_of_headers
from runtime.retries import RetryPolicy
from runtime.spark.worker.connection import ConcurrencyLimit, Connection, Wait, open_table
from runtime.spark.worker.outcomes import OutcomeWriter, rows_of, to_arrow
from runtime.supervision import Watch, bounded_memory, supervised
from runtime.telemetry import OFF, Metrics
from runtime.versions.properties import error_location
from runtime.versions.stream import is_key

S = TypeVar("S")
R = TypeVar("R")

MAX_DELIVERIES = 49_152
MAX_TEXT_BYTES = 32 * 2**20
MAX_BUFFERED_BYTES = 128 * 2**20  # of all groups in process; a larger group is processed alone
LARGE_BYTES = 2**20  # a larger group does not wait for a group commit
MAX_CHUNK_BYTES = 8 * 2**20
DELIVERY_BYTES = 2048  # measured memory of a delivery without its text, until its outcome is written
HARD_LIMIT = 2  # groups may exceed their limits by this factor to keep copies of a message together


@dataclass(slots=True)
class Group:
    """Deliveries of one stream in order. A long stream makes several groups."""

    handler: str | None
    business_id: str | None  # for routing; the envelopes have the one named in the log
    follows: bool = False  # the previous group belongs to the same stream
    is_followed: bool = False  # the next group belongs to the same stream
    envelopes: Envelopes = field(default_factory=Envelopes)
    problems: list[str | None] = field(default_factory=list)  # of invalid envelopes
    text_bytes: int = 0
    letters: list[int] | None = None  # in a redrive, the numbers of the dead letters
    deliveries: Deliveries | None = None  # the prepared envelopes

    @property
    def size(self) -> int:
        return self.text_bytes + DELIVERY_BYTES * len(self.problems)

    def has_room(self, deliveries: int, text: int) -> bool:
        """Return whether deliveries with a total size of `text` bytes fit."""
        return len(self.problems) + deliveries <= MAX_DELIVERIES and self.text_bytes + text <= MAX_TEXT_BYTES

    def has_room_for(self, message_id: str) -> bool:
        """Return whether one more delivery fits. A copy of the last message may exceed the limits, see `HARD_LIMIT`."""
        is_copy = self.envelopes.message_ids[-1:] == [message_id]
        times = HARD_LIMIT if is_copy else 1
        return len(self.problems) < times * MAX_DELIVERIES and self.text_bytes < times * MAX_TEXT_BYTES

    def add(self, envelopes: Envelopes, problems: list[str | None], text: int) -> None:
        """Add deliveries with a total size of `text` bytes."""
        if self.problems:
            self.envelopes.extend(envelopes)
        else:
            self.envelopes = envelopes
        self.problems += problems
        self.text_bytes += text


@dataclass(slots=True)
class Chunk:
    """Deliveries of whole small streams of one handler. `ends`: the position after each stream's last delivery."""

    handler: str
    business_ids: list[str]
    ends: list[int]
    envelopes: Envelopes
    size: int


class _Stretch(NamedTuple):
    first: int
    end: int
    handler: str | None
    business_id: str | None


def groups(batches: Iterable[pa.RecordBatch]) -> Iterator[Group]:
    """Yield a group for each run of rows of one handler and business id. `batches` must be sorted by these."""
    return (each for each in cut(batches, 0) if isinstance(each, Group))


def cut(batches: Iterable[pa.RecordBatch], most: int) -> Iterator[Group | Chunk]:
    """Cut the sorted rows of a partition into groups, and chunks of streams with up to `most` deliveries."""
    group: Group | None = None
    for batch in batches:
        envelopes, problems, text_before = _deliveries(batch)
        for streams in _chunks(batch, text_before, most):
            first, end, handler, business_id = streams[0] if isinstance(streams, list) else streams
            if group is not None and (group.handler, group.business_id) != (handler, business_id):
                yield group
                group = None
            if isinstance(streams, list):
                end = streams[-1].end
                ids, ends = (
                    [str(each.business_id) for each in streams],
                    [each.end - first for each in streams],
                )
                size = _size(first, end, text_before)
                yield Chunk(str(handler), ids, ends, envelopes[first:end], size)
                continue
            group = group or Group(handler, business_id)
            text = text_before[end] - text_before[first]
            if group.has_room(end - first, text):
                group.add(envelopes[first:end], problems[first:end], text)
                continue
            for row in range(first, end):
                if not group.has_room_for(envelopes.message_ids[row]):
                    group.is_followed = True
                    yield group
                    group = Group(handler, business_id, follows=True)
                text = text_before[row + 1] - text_before[row]
                group.add(envelopes[row : row + 1], problems[row : row + 1], text)
    if group is not None:
        yield group


def _chunks(
    batch: pa.RecordBatch, text_before: Sequence[int], most: int
) -> Iterator[list[_Stretch] | _Stretch]:
    """Yield streams: those of up to `most` deliveries in lists, all others singly. `text_before`: see `_deliveries`."""
    chunk: list[_Stretch] = []
    for stream in _stretches(batch):
        # A stretch is a whole stream if it has one before and one after it.
        is_small = (
            stream.first > 0
            and stream.end < len(batch)
            and stream.end - stream.first <= most
            and bool(stream.handler and stream.business_id)
        )
        if chunk and not (
            is_small
            and stream.handler == chunk[0].handler
            and stream.end - chunk[0].first <= MAX_CHUNK_DELIVERIES
            and _size(chunk[0].first, stream.end, text_before) <= min(MAX_CHUNK_BYTES, MAX_BUFFERED_BYTES)
        ):
            yield chunk
            chunk = []
        if is_small:
            chunk.append(stream)
        else:
            yield stream
    if chunk:
        yield chunk


def _size(first: int, end: int, text_before: Sequence[int]) -> int:
    return text_before[end] - text_before[first] + DELIVERY_BYTES * (end - first)


def _deliveries(batch: pa.RecordBatch) -> tuple[Envelopes, list[str | None], list[int]]:
    """Return the deliveries of a batch, their problems, and the cumulative size of their text, starting at 0."""
    lines, bodies, types = batch.column("line"), batch.column("body"), batch.column("type")
    headers, texts = batch.column("headers"), bodies.to_pylist()
    if lines.null_count < len(lines):  # an invalid row has its line as body
        texts = [body if line is None else line for line, body in zip(lines.to_pylist(), texts, strict=True)]
    if not types.null_count:  # share one object per type, which is hashed once
        types = types.dictionary_encode()
        names = types.dictionary.to_pylist()
        types = [names[index] for index in types.indices.to_pylist()]
    else:
        types = types.to_pylist()
    envelopes = Envelopes(
        batch.column("message_id").to_pylist(),
        types,
        texts,
        _texts(batch.column("given")),
        batch.column("sequence").to_pylist(),
        batch.column("enqueued_at").cast(pa.int64()).to_pylist(),
        [(json.loads(text) or None) if text else None for text in _texts(headers)],
    )
    text = pc.fill_null(pc.coalesce(pc.binary_length(lines), pc.binary_length(bodies)), 0)
    sizes = pc.add(text, pc.fill_null(pc.binary_length(headers), 0))
    return envelopes, _texts(batch.column("problem")), list(accumulate(sizes.to_pylist(), initial=0))


def _stretches(batch: pa.RecordBatch) -> Iterator[_Stretch]:
    if not len(batch):
        return
    handlers, business_ids = batch.column("handler"), batch.column("business_id")
    changes = pc.or_(_differ_from_next(handlers), _differ_from_next(business_ids))
    begins = [0, *(end + 1 for end in pc.indices_nonzero(changes).to_pylist())]
    firsts = (column.take(pa.array(begins)).to_pylist() for column in (handlers, business_ids))
    yield from map(_Stretch, begins, [*begins[1:], len(batch)], *firsts)


def _differ_from_next(column: pa.Array) -> pa.Array:
    """Return, for each value but the last, whether it differs from the next one. Null equals null."""
    these, following = column[:-1], column[1:]
    differ = pc.fill_null(pc.not_equal(these, following), False)
    return pc.or_(differ, pc.xor(pc.is_null(these), pc.is_null(following))) if column.null_count else differ


def _texts(column: pa.Array) -> list[str | None]:
    return [None] * len(column) if column.null_count == len(column) else column.to_pylist()


def letter_groups(batches: Iterable[pa.RecordBatch]) -> Iterator[Group]:
    """Cut the sorted dead letters of a redrive into groups."""
    group: Group | None = None
    letters: list[int] = []
    for row in rows_of(batches):
        envelope = unpack_envelope(row["delivery"])
        size = size_of(envelope.body) + size_of_headers(envelope.headers)
        stream = (row["handler"], row["business_id"])
        follows = group is not None and (group.handler, group.business_id) == stream
        if group is None or not follows or not group.has_room(1, size):
            if group is not None:
                group.is_followed = follows
                yield group
            group = Group(*stream, follows=follows, letters=(letters := []))
        group.add(Envelopes.of([envelope]), [row["problem"]], size)
        letters.append(row["letter"])
    if group is not None:
        yield group


G = TypeVar("G", bound=Group | Chunk)


def by_stream(
    given: Iterable[G | Wait], begin: Callable[[], S], work: Callable[[G, S], Coroutine[Any, Any, R]]
) -> Iterator[Coroutine[Any, Any, R] | Wait]:
    """Yield `work(group, state)` for each group. `begin` makes the state of a stream, which all its groups share.

    `Wait` items between the coroutines keep each stream in sequence, and limit the memory.
    """
    held = 0

    async def within_bounds(group: G, stream: S) -> R:
        nonlocal held
        result = await work(group, stream)
        held -= group.size  # correct, because its result is consumed before the next group is admitted
        return result

    stream = begin()
    for group in given:
        if isinstance(group, Wait):
            yield group
            continue
        if isinstance(group, Group) and group.follows:
            yield Wait.FOR_ALL
        else:
            stream = begin()
        while held and held + group.size > MAX_BUFFERED_BYTES:
            yield Wait.FOR_ONE
        held += group.size
        if group.size > LARGE_BYTES:
            yield Wait.FOR_NEXT
        yield within_bounds(group, stream)
        del group  # releases memory before the next one is read


def prepared(
    group: Group, app: App, limits: MessageLimits, types: Collection[str] | None = None
) -> Deliveries | list[Outcome]:
    """Return the prepared deliveries of a group, or their dead letters if it has no stream. `types`: see `FoldJob`."""
    if group.deliveries is not None:
        return group.deliveries
    handler = app.handlers.get(group.handler or "")
    if handler is None:
        rows = zip(group.envelopes, group.problems, strict=True)
        return [unroutable(*row, group.handler, types) for row in rows]
    deliveries = prepare_all(handler, group.business_id, group.envelopes, limits, letters=group.letters)
    if group.business_id is not None:
        return deliveries
    refused = (each for each in deliveries.messages if isinstance(each, Outcome))
    return [not_allowed(each.envelope, handler.name, types) or each for each in refused]


_NEW_OBJECTS = 50_000  # allocations between garbage collections; Python's default is 700
_frozen: set[int] = set()


@contextmanager
def rare_collections() -> Iterator[None]:
    """Context manager that runs the garbage collector rarely, and never on objects made before its first use."""
    # Messages make many objects but no cycles. Scanning them costs a tenth of the time.
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


@contextmanager
def supervising(app: App, options: BatchOptions) -> Iterator[App]:
    """Context manager that yields the app with limits of time and memory. If a limit ends the worker, Spark retries."""
    if threading.current_thread() is not threading.main_thread():
        yield app
        return
    context = TaskContext.get()
    is_retry = context is not None and context.attemptNumber() > 0
    seconds = options.handler_timeout.total_seconds()
    with bounded_memory(options.worker_memory), Watch(seconds, is_retry=is_retry) as watch:
        yield supervised(app, watch)


@dataclass(frozen=True)
class FoldJob:
    """Handles a partition of deliveries on a worker: folds the messages of each stream into states and outputs."""

    app: App
    store: str = field(repr=False)
    table: str
    batch: BatchContext
    options: BatchOptions = field(default_factory=BatchOptions)
    types: Collection[str] | None = None  # the message types allowed in the log; None: all
    is_supervised: bool = False  # limits time and memory of handlers
    metrics: Metrics = OFF  # of this task, once the job was pickled

    @property
    def other_table(self) -> TablePlace | None:
        """The table that workers open in addition to the table of the states, or None if there is no other."""
        return self.options.other_table

    def algorithms(self, given: Dependencies) -> Mapping[str, BatchAlgorithm]:
        return make_batch_algorithms(self.options.algorithm, given)

    def open(self, app: App | None = None) -> tuple[Connection, ConcurrencyLimit, Dependencies]:
        """Return the worker's connection, concurrency limit, and algorithm dependencies. `app` overrides `self.app`."""
        options, metrics = self.options, self.metrics
        connection = open_table(self.store, self.table, self.other_table)
        concurrency = ConcurrencyLimit(options.in_flight)
        # The rows of a file are read and written for many streams at once, which a table that is watched cannot.
        watching = metrics.watching if connection.table.scope == "network" else lambda table: table
        other = watching(connection.measured(connection.other, concurrency, options.wrap))
        dependencies = Dependencies(
            app or self.app,
            watching(connection.measured(connection.table, concurrency, options.wrap)),
            deduplication_store=other,
            token_store=other,
            clock=options.clock,
            retries=RetryPolicy(noted=metrics.retried),
            batch=self.batch,
            documents=None if options.documents is None else open_documents(options.documents),
        )
        return connection, concurrency, dependencies

    def fold(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Handle the deliveries of a partition by stream, and yield their outcomes."""
        return self._fold(partial(cut, batches))

    def redrive(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Handle the dead letters of a partition by stream, and yield their outcomes."""
        return self._fold(lambda _: letter_groups(batches))

    def finish(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Finish messages of a committed round: delete their outputs from outboxes. Yield the number of entities."""
        connection, concurrency, dependencies = self.open()
        outboxes = make_outboxes(self.options.algorithm, dependencies)
        ids = ((row, list(map(id_key, sorted(row["message_ids"])))) for row in rows_of(batches))
        work = (outboxes[row["handler"]].finish(row["business_id"], keys) for row, keys in ids)
        finished = sum(1 for _ in connection.run_all(work, concurrency))
        yield pa.RecordBatch.from_pydict({"entities": pa.array([finished], pa.int64())})

    def sweep(self, latest: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield outcomes of unfinished messages, except those handled outside a batch after `latest` (microseconds)."""
        connection, concurrency, dependencies = self.open()
        outboxes = make_outboxes(self.options.algorithm, dependencies)
        work = (outboxes[row["handler"]].unfinished(row["business_id"], latest) for row in rows_of(batches))
        for outcomes in connection.run_all(work, concurrency):
            yield to_arrow([Outcomes.of(outcomes)])

    def _fold(self, given: Callable[[int], Iterable[Group | Chunk]]) -> Iterator[pa.RecordBatch]:
        """Yield outcomes of the items of `given(most)`: groups, and chunks of streams with up to `most` deliveries."""
        with supervising(self.app, self.options) if self.is_supervised else nullcontext(self.app) as app:
            connection, concurrency, dependencies = self.open(app)
            algorithms = self.algorithms(dependencies)
            letters = TableLetters(dependencies.table, self.batch, dependencies.clock, dependencies.retries)

            together = {
                name: StreamsTogether.of(algorithm, dependencies.table)
                for name, algorithm in algorithms.items()
            }
            most = SMALL_DELIVERIES if any(together.values()) else 0
            left: deque[Group] = deque()

            async def handle(group: Group | Chunk, stream: _Stream) -> Outcomes:
                if isinstance(group, Chunk):
                    return await self._together(group, together.get(group.handler), left)
                outcomes = await self._outcomes(group, app, dependencies.table, algorithms, stream.seen)
                key = f"{group.handler}-{group.business_id}"
                if outcomes.refused and (None in (group.handler, group.business_id) or not is_key(key)):
                    await letters.keep(list(outcomes.refused.values()))  # they belong to no stream
                if group.is_followed and outcomes:
                    stream.seen = stream.seen.between_groups(outcomes)
                return outcomes

            writer = OutcomeWriter()
            with rare_collections():
                for outcomes in connection.run_all(
                    by_stream(_with(left, given(most)), _Stream, handle), concurrency
                ):
                    writer.add(outcomes)
                    del outcomes  # releases memory before the next group is handled
                    while writer.is_full:
                        yield writer.flush()
                yield writer.flush()

    async def _together(self, chunk: Chunk, streams: StreamsTogether | None, left: deque[Group]) -> Outcomes:
        begins = [0, *chunk.ends[:-1]]
        if streams is None:
            deliveries, outcomes, numbers = None, Outcomes(Envelopes()), list(range(len(begins)))
        else:
            deliveries = streams.prepare(chunk.business_ids, chunk.ends, chunk.envelopes)
            outcomes, numbers = await streams.process(chunk.business_ids, chunk.ends, deliveries)
        for number in numbers:
            part = slice(begins[number], chunk.ends[number])
            group = Group(chunk.handler, chunk.business_ids[number])
            text = chunk.size * (part.stop - part.start) // len(chunk.envelopes)  # an estimate
            group.add(chunk.envelopes[part], [None] * (part.stop - part.start), text)
            group.deliveries = deliveries and deliveries[part]
            left.append(group)
        return outcomes

    async def _outcomes(
        self, group: Group, app: App, table: Table, algorithms: Mapping[str, BatchAlgorithm], seen: Seen
    ) -> Outcomes:
        deliveries = prepared(group, app, self.batch.limits, self.types)
        if not isinstance(deliveries, Deliveries):
            return Outcomes.of(deliveries)
        handler, business_id = str(group.handler), str(group.business_id)
        try:
            with error_location(table):
                return Outcomes.of(await algorithms[handler].process(business_id, deliveries, seen))
        except StoredDataError as error:
            # Dead letters cannot be stored with a corrupt stream, only in the outcomes.
            why = (Reason.STREAM_DAMAGED, str(error), handler)
            return Outcomes.of(
                [
                    each if isinstance(each, Outcome) else dead_letter(each.envelope, *why, each.business_id)
                    for each in deliveries
                ]
            )


def _with(left: deque[Group], given: Iterable[Group | Chunk]) -> Iterator[Group | Chunk | Wait]:
    """Yield given groups and chunks and, between streams, groups that were added to `left` while handling chunks."""
    for group in given:
        while left and not (isinstance(group, Group) and group.follows):
            yield left.popleft()
        yield group
        del group  # releases memory before the next one is read
    yield Wait.FOR_ALL
    while left:
        yield left.popleft()


@dataclass(slots=True)
class _Stream:
    seen: Seen = NOTHING  # the decisions in earlier groups
