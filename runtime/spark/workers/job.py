"""What the workers of a batch are told, and the fold of one partition that they run.

Everything here is pickled and sent to Spark's Python workers. A worker keeps one connection to the store, and for a
store on the network one event loop, as long as it lives.
"""

from __future__ import annotations

from collections.abc import Collection, Coroutine, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import pyarrow as pa

from eventstore import Table
from handlers import App
from runtime.algorithms.choice import (
    AlgorithmName,
    BatchAlgorithm,
    Dependencies,
    make_batch_algorithms,
    make_outboxes,
)
from runtime.algorithms.letters.of_table import TableLetters
from runtime.batch_options import TablePlace, Wrap
from runtime.batches.context import BatchContext
from runtime.batches.seen import NOTHING
from runtime.clock import Clock, system_clock
from runtime.documents.opening import open_documents
from runtime.errors import StoredDataError
from runtime.messages.deliveries import Delivery
from runtime.messages.limits import MessageLimits
from runtime.messages.message_ids import id_key
from runtime.messages.outcome import Outcome, Reason, dead_letter
from runtime.messages.outcomes import Outcomes
from runtime.messages.parsing import not_allowed, prepare_all, unroutable
from runtime.spark.workers.buffer import Buffer
from runtime.spark.workers.concurrency import ConcurrencyLimit, Wait
from runtime.spark.workers.connection import Connection, open_table
from runtime.spark.workers.deliveries import Group, groups
from runtime.spark.workers.garbage import rare_collections
from runtime.spark.workers.letters import letter_groups
from runtime.spark.workers.outcomes import OutcomeWriter, to_arrow
from runtime.spark.workers.supervision import Supervision, supervising
from runtime.storage.damage import placed
from runtime.storage.stream import is_key


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
