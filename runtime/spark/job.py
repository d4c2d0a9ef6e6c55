"""What the workers of a batch are told, and the fold of one partition that they run.

Everything here is pickled and sent to Spark's Python workers. A worker keeps one connection to the store, and for a
store on the network one event loop, as long as it lives.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from eventstore import InvalidKeyError, Store, Table
from handlers import App
from runtime.backoff import BackoffPolicy, sleep_for
from runtime.clock import Clock, system_clock
from runtime.fold import BatchContext
from runtime.outcome import Outcome, Reason, Status, dead_letter
from runtime.preparation import prepare
from runtime.spark.connection import open_table
from runtime.spark.deliveries import Group, groups
from runtime.spark.outcomes import OutcomeWriter
from runtime.state_based import StateBased
from runtime.state_stream import stream_partition

Wrap = Callable[[Table], Table]


@dataclass(frozen=True)
class FoldJob:
    """All that a worker needs to fold a partition of deliveries.

    `in_flight` bounds how many streams a worker works on at once when the store is on the network. `wrap` is put
    around the table, for example to count its requests or to place faults.
    """

    app: App
    store: str
    table: str
    batch: BatchContext
    clock: Clock = system_clock
    in_flight: int = 32
    wrap: Wrap | None = None

    def fold(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Handle the deliveries of a partition, stream by stream, and give their outcomes."""
        connection = open_table(self.store, self.table)
        table = self.wrap(connection.table) if self.wrap else connection.table
        worker = _Worker(self, table, connection.store)
        writer = OutcomeWriter()
        for outcomes in connection.run_all(
            (worker.process(group) for group in groups(batches)), self.in_flight
        ):
            writer.add(outcomes)
            if writer.is_full:
                yield writer.flush()
        yield writer.flush()


@dataclass
class _Turn:
    """Lets the groups of one long stream take turns, and remembers whether a dead letter stopped it."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    stopped: bool = False


class _Worker:
    """Processes groups of deliveries, each with the algorithm of its handler."""

    def __init__(self, job: FoldJob, table: Table, store: Store) -> None:
        self._app = job.app
        self._table = table
        self._turn = _Turn()
        self._stops = job.batch.on_error == "stop-stream"
        self._algorithms = {
            name: StateBased(
                table, handler, job.clock, job.batch, BackoffPolicy(sleep=sleep_for(store.scope))
            )
            for name, handler in job.app.handlers.items()
        }

    def process(self, group: Group) -> Coroutine[Any, Any, Sequence[Outcome]]:
        """Return the work on a group; groups of one stream take turns in the order of these calls."""
        if not group.follows:
            self._turn = _Turn()
        return self._in_turn(group, self._turn)

    async def _in_turn(self, group: Group, turn: _Turn) -> Sequence[Outcome]:
        async with turn.lock:
            outcomes = await self._process(group, stopped=turn.stopped)
            turn.stopped = self._stops and (
                turn.stopped or any(o.status is Status.DEAD_LETTER for o in outcomes)
            )
        return outcomes

    async def _process(self, group: Group, *, stopped: bool) -> Sequence[Outcome]:
        if group.handler is None:
            return [
                dead_letter(envelope, *_why_unroutable(envelope.type, why))
                for envelope, why in group.deliveries
            ]
        handler = self._app.handlers[group.handler]
        envelopes = [envelope for envelope, _ in group.deliveries]
        prepared = [prepare(handler, group.business_id, envelope) for envelope in envelopes]
        if group.business_id is None or all(isinstance(delivery, Outcome) for delivery in prepared):
            return [delivery for delivery in prepared if isinstance(delivery, Outcome)]
        try:
            stream_partition(self._table, handler.name, group.business_id)
        except InvalidKeyError as error:
            place = (handler.name, group.business_id)
            return [dead_letter(envelope, Reason.KEY_TOO_LONG, str(error), *place) for envelope in envelopes]
        return await self._algorithms[handler.name].process(group.business_id, prepared, stopped=stopped)


def _why_unroutable(type_: str, problem: str | None) -> tuple[Reason, str]:
    if problem is not None:
        return Reason.INVALID_ENVELOPE, problem
    return Reason.UNKNOWN_TYPE, f"No handler takes messages of type {type_}."
