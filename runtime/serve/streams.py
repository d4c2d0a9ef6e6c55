"""The streams of a consumer. Deliveries of one stream are handled in order, several with one query and transaction."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate, pairwise
from typing import Any, TypeVar
from urllib.parse import unquote

from eventstore import StoreUnavailableError, Table
from eventstore.port import pause_seconds
from handlers import App
from runtime.algorithms.algorithm import fresh_id, has_stream
from runtime.algorithms.state_based.algorithm import (
    MAX_CHUNK_DELIVERIES,
    SMALL_DELIVERIES,
    StateBased,
    StreamsTogether,
)
from runtime.clock import Clock, to_datetime
from runtime.dead_letters import TableLetters
from runtime.documents import Documents, open_documents
from runtime.errors import RetriesExhaustedError, StoredDataError, TargetUnavailableError
from runtime.ledger.batch import POSITION, BatchContext
from runtime.messages.envelope import Envelope, Envelopes, id_key
from runtime.messages.outcome import Outcome, Outcomes, Reason, Status, dead_letter
from runtime.messages.parsing import id_as_written, prepare_all, refused_for_size, unroutable
from runtime.publishing.publisher import CommittedOutput
from runtime.retries import RetryPolicy
from runtime.serve.messages import Lane, Received, Source, SourceUnavailableError, Stage, letter_of
from runtime.serve.options import ServeOptions
from runtime.telemetry import Metrics, has_tracer, message_spans
from runtime.versions.properties import error_location
from runtime.versions.stream import find_versions

LOG = logging.getLogger("consistent.serve")
T = TypeVar("T")

_ATTEMPTS = 6  # before a store counts as unavailable; then consumption pauses, and attempts continue
FIRST_SECONDS, LONGEST_SECONDS = 0.1, 10.0
_UNAVAILABLE = (RetriesExhaustedError, StoreUnavailableError, SourceUnavailableError, TargetUnavailableError)


class Troubles(dict[str, str]):
    """Maps the name of each unavailable service to the reason. Logs when a service stops or resumes answering."""

    def add(self, name: str, error: Exception) -> None:
        """Record that the service `name` does not answer, and log it unless the service was already unavailable."""
        if name not in self:
            LOG.warning("%s is unavailable, so consumption pauses: %s", name, error)
        self[name] = str(error)

    def end(self, name: str) -> None:
        """Record that the service `name` answers again, and log it if the service was unavailable."""
        if self.pop(name, None) is not None:
            LOG.warning("%s is available again", name)

    async def until_it_answers(self, name: str, work: Callable[[], Awaitable[T]]) -> T:
        """Repeat work on a store, source or target, with back-off, until the service answers. Return the result."""
        failures = 0
        while True:
            try:
                result = await work()
            except _UNAVAILABLE as error:
                failures += 1
                self.add(name, error)
                asked = getattr(error, "retry_after", None)
                await asyncio.sleep(asked or pause_seconds(failures, FIRST_SECONDS, LONGEST_SECONDS))
            else:
                self.end(name)
                return result


# Positions: which deliveries made a version, recorded in the version's field for the batch.
#
# `@kafka:CLUSTER/GROUP orders/3:100-104,110` names the deliveries that made the versions of one commit. A version is
# published by the delivery that made it, in the transaction that commits its offset. So a copy at another offset
# publishes nothing, which is known without more state (decision 26).


def position_of(source: str, received: Iterable[Received]) -> str:
    """Return the position that the versions of these deliveries record (docs/decisions/0026).

    The deliveries belong to one stream. `source` is `Source.origin`.
    """
    offsets: dict[str, list[int]] = {}
    for each in received:
        if each.lane is not None:
            offsets.setdefault(each.lane.name, []).append(each.offset)
    lanes = " ".join(f"{lane}:{_spans(sorted(found))}" for lane, found in offsets.items())
    return f"{POSITION}{source} {lanes}"


def _spans(offsets: list[int]) -> str:
    starts = [offsets[0], *(after for before, after in pairwise(offsets) if after != before + 1)]
    ends = [*(before for before, after in pairwise(offsets) if after != before + 1), offsets[-1]]
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in zip(starts, ends, strict=True))


def makers(source: str, recorded: str | None) -> Mapping[str, list[range]]:
    """Parse a version's position into offsets, by lane. Return {} for a version that did not come from this source."""
    name, *lanes = (recorded or "").split(" ")
    if name != f"{POSITION}{source}":
        return {}
    found = {}
    for lane, _, spans in (each.rpartition(":") for each in lanes):
        ends = (span.partition("-") for span in spans.split(","))
        found[lane] = [range(int(first), int(last or first) + 1) for first, _, last in ends]
    return found


def is_published_by_another(
    received: Received, made_by: Mapping[str, list[range]], lanes: Mapping[str, Lane]
) -> bool:
    """Return whether another delivery made the version of a duplicate, and has published or will publish the outputs.

    `made_by`, the result of `makers`, has the offsets of the deliveries that made the version, by the name of the lane.
    Return False if `made_by` is empty or contains `received`, or if a compacted topic dropped the other delivery before
    it was acknowledged.
    """
    if not made_by:
        return False
    own = received.lane and received.lane.name
    if own and any(received.offset in span for span in made_by.get(own, ())):
        return False
    return not any(
        lane.base <= offset <= lane.newest and offset not in lane.waiting
        for name, spans in made_by.items()
        if (lane := lanes.get(name)) is not None
        for span in spans
        for offset in span
    )


Key = tuple[str, str] | None
"""Handler and business id of a stream; None for deliveries that reach no stream."""

_Some = list[tuple[Received, Outcome | None]]
"""Deliveries of one stream, each with its dead letter if the delivery reaches no stream."""


@dataclass(slots=True)
class _Inbox:
    waiting: deque[tuple[Received, Outcome | None]] = field(default_factory=deque)
    is_worked_on: bool = False


class Streams:
    """The streams whose deliveries wait or are being handled. Calls `done` with each handled delivery."""

    def __init__(
        self,
        app: App,
        table: Table,
        source: Source,
        options: ServeOptions,
        *,
        clock: Clock,
        troubles: Troubles,
        lanes: Mapping[str, Lane],
        done: Callable[[Received], None],
        metrics: Metrics,
    ) -> None:
        self.counts: Counter[str] = Counter()
        self._metrics = metrics
        self._system, _, self._place = source.name.partition("://")
        self._table = metrics.watching(table)
        self._retries = RetryPolicy(attempts=_ATTEMPTS, noted=metrics.retried).beside(self._table)
        self._app, self._origin, self._options, self._clock = app, source.origin, options, clock
        documents = None
        if options.documents is not None:
            place = open_documents(options.documents)
            documents = Documents(place, self._table, clock, fresh_id, self._retries)
        self._algorithms = {
            name: StateBased(self._table, handler, clock, BatchContext(), self._retries, documents=documents)
            for name, handler in app.handlers.items()
        }
        self._together = {
            name: together
            for name, algorithm in self._algorithms.items()
            if (together := StreamsTogether.of(algorithm, table)) is not None and not has_tracer()
        }  # with a tracer, each fold needs its own span
        self._troubles, self._lanes, self._done = troubles, lanes, done
        self._inboxes: dict[Key, _Inbox] = {}
        self._ready: deque[Key] = deque()  # streams of a store of this machine that wait for a round
        self._is_in_rounds = False
        self._places = asyncio.Semaphore(options.concurrency)

    def add(self, received: Received) -> Iterator[Coroutine[Any, Any, None]]:
        """Put a delivery into the inbox of each of its streams. Yield coroutines that handle the idle streams."""
        envelope = received.envelope
        routes = () if received.problem else self._app.routes(envelope.type)
        refused = refused_for_size(envelope) if routes else unroutable(envelope, received.problem)
        keys: dict[Key, Outcome | None] = {None: refused}
        if refused is None:
            keys = {}
            for route in routes:
                keys[route.handler, id_as_written(route, envelope) or ""] = None
        received.unfinished = len(keys)
        for key, outcome in keys.items():
            inbox = self._inboxes.setdefault(key, _Inbox())
            inbox.waiting.append((received, outcome))
            if not inbox.is_worked_on:
                inbox.is_worked_on = True
                if not self._together:
                    yield self._work(key, inbox)
                    continue
                self._ready.append(key)
                if not self._is_in_rounds:
                    self._is_in_rounds = True
                    yield self._work_in_rounds()

    async def _work(self, key: Key, inbox: _Inbox) -> None:
        """Handle the deliveries of an inbox until it is empty."""
        while inbox.waiting:
            async with self._places:
                some = self._take(inbox)
                if some:
                    await self._fold(key, some)
        del self._inboxes[key]

    async def _work_in_rounds(self) -> None:
        """Handle the deliveries of the streams in `_ready` until it is empty. Small streams share a transaction."""
        while self._ready:
            taken: list[tuple[Key, _Some]] = []
            count = 0
            while self._ready and count < MAX_CHUNK_DELIVERIES:
                key = self._ready.popleft()
                taken.append((key, self._take(self._inboxes[key])))
                count += len(taken[-1][1])
            small: dict[str, list[tuple[str, _Some]]] = {}
            alone = []
            for key, some in taken:
                if key is None or not key[1] or len(some) > SMALL_DELIVERIES:
                    alone.append((key, some))
                elif some:
                    small.setdefault(key[0], []).append((key[1], some))
            for name, streams in small.items():
                alone += await self._fold_together(name, streams)
            await asyncio.gather(*(self._fold(key, some) for key, some in alone if some))
            for key, _ in taken:
                if self._inboxes[key].waiting:
                    self._ready.append(key)
                else:
                    del self._inboxes[key]
            await asyncio.sleep(0)  # other tasks read and publish between rounds
        self._is_in_rounds = False

    async def _fold_together(
        self, name: str, streams: Sequence[tuple[str, _Some]]
    ) -> Iterable[tuple[Key, _Some]]:
        """Handle small streams of a handler in one query and one commit. Return those to handle one by one."""
        business_ids = [business_id for business_id, _ in streams]
        ends = list(accumulate(len(some) for _, some in streams))
        together = self._together[name]
        envelopes = Envelopes.of(received.envelope for _, some in streams for received, _ in some)
        origin, batch_ids = self._origin, None
        if origin is not None:
            batch_ids = [position_of(origin, [received for received, _ in some]) for _, some in streams]
        deliveries = together.prepare(business_ids, ends, envelopes)
        outcomes, left = await together.process(business_ids, ends, deliveries, batch_ids)
        remaining = set(left)
        stored = [
            received for n, (_, some) in enumerate(streams) if n not in remaining for received, _ in some
        ]
        self._metrics.handled(outcomes)
        for received, outcome in zip(stored, outcomes, strict=True):
            self._conclude(received, outcome, publishes=True)
            self._finish(received)
        return [((name, streams[number][0]), streams[number][1]) for number in left]

    def _take(self, inbox: _Inbox) -> _Some:
        some: _Some = []
        while inbox.waiting and len(some) < self._options.fold:
            received, refused = inbox.waiting.popleft()
            if received.stage is not Stage.DROPPED:
                received.stage = Stage.STARTED
                some.append((received, refused))
        return some

    async def _fold(self, key: Key, some: _Some) -> None:
        received = [each for each, _ in some]
        with self._spans(received) as (traced, note):
            if key is None:
                outcomes = {place: each for place, (_, each) in enumerate(some) if each is not None}
                await self._troubles.until_it_answers("the store", partial(self._keep, [*outcomes.values()]))
                self._metrics.handled(outcomes.values())
                for place, outcome in outcomes.items():
                    self._conclude(received[place], outcome, publishes=False)
            else:
                work = partial(self._handle, *key, received, traced)
                outcomes = await self._troubles.until_it_answers("the store", work)
            for place, outcome in outcomes.items() if note else ():
                note(place, outcome)
        for each in received:
            self._finish(each)

    def _finish(self, received: Received) -> None:
        received.unfinished -= 1
        if not received.unfinished:
            received.stage = Stage.DONE
            self._done(received)

    def _spans(self, received: Sequence[Received]) -> AbstractContextManager[Any]:
        def attributes(place: int) -> dict[str, object]:
            each = received[place]
            own = {"messaging.system": self._system, "messaging.message.body.size": each.size}
            if each.lane is None:
                return own
            lane, group = each.lane.name.rpartition("/"), (self._origin or "").rpartition("/")[2]
            kafka = {"messaging.kafka.offset": each.offset, "messaging.consumer.group.name": unquote(group)}
            return {**own, **kafka, "messaging.destination.partition.id": lane[2]}

        lane = received[0].lane
        to = (self._place if lane is None else lane.name.rpartition("/")[0]) or self._system
        return message_spans([each.envelope for each in received], to, attributes)

    async def _handle(
        self, name: str, business_id: str, received: Sequence[Received], traced: Sequence[Envelope]
    ) -> dict[int, Outcome]:
        """Handle deliveries of one stream, and add outputs to the deliveries. Return outcomes by index in `received`.

        `traced` are the envelopes of the deliveries, with headers that pass the trace to outputs.
        """
        envelopes, made = Envelopes.of(traced), 0
        handler, algorithm = self._app.handlers[name], self._algorithms[name]
        deliveries = prepare_all(handler, business_id or None, envelopes)
        found = {
            place: each
            for place, each in enumerate(deliveries.messages)
            if isinstance(each, Outcome) and not has_stream(each)
        }
        places = [place for place in range(len(received)) if place not in found]
        if places:
            handled = [received[place] for place in places]
            ready = deliveries if not found else [deliveries[place] for place in places]
            batch = BatchContext()
            if self._origin is not None:
                position = partial(position_of, self._origin)
                batch = BatchContext(
                    position(handled), of=lambda at: position([handled[each] for each in at])
                )
            try:
                with error_location(self._table):
                    outcomes = await algorithm.on_behalf_of(batch).process(business_id, ready)
                made = outcomes.made if isinstance(outcomes, Outcomes) else 0
            except StoredDataError as error:
                LOG.warning("%s-%s cannot be read: %s", name, business_id, error)
                why = Reason.STREAM_DAMAGED, str(error), name
                outcomes = [dead_letter(each.envelope, *why) for each in handled]
            found |= zip(places, outcomes, strict=True)
        await self._keep([each for each in found.values() if each.is_dead_letter and not has_stream(each)])
        published_before = await self._published_by_others(name, business_id, received, found)
        self._metrics.handled(found.values(), made)
        for place, outcome in sorted(found.items()):
            self._conclude(received[place], outcome, publishes=place not in published_before)
        return found

    def _conclude(self, received: Received, outcome: Outcome, *, publishes: bool) -> None:
        self.counts[outcome.status] += 1
        if outcome.is_dead_letter:
            envelope = outcome.envelope
            told = {"message": envelope.message_id, "handler": outcome.handler, "object": outcome.business_id}
            told |= {"reason": outcome.reason, "traceparent": (envelope.headers or {}).get("traceparent")}
            LOG.warning(
                "Message %s is a dead letter (%s): %s", envelope.message_id, outcome.reason, outcome.error,
                extra={"fields": told},
            )  # fmt: skip
        if outcome.status in {Status.DEAD_LETTER, Status.TOO_LATE}:
            if self._options.dead_letters is not None:
                received.letters.append(letter_of(outcome))
        elif publishes:
            business_id, handler = outcome.business_id or "", outcome.handler or ""
            received.outputs += [
                CommittedOutput(
                    each.message_id, each.type, each.body, business_id, handler, each.sequence,
                    to_datetime(each.enqueued_at), each.headers,
                )
                for each in outcome.outputs
            ]  # fmt: skip

    async def _published_by_others(
        self, name: str, business_id: str, received: Sequence[Received], outcomes: Mapping[int, Outcome]
    ) -> set[int]:
        """Return the indexes of duplicates whose outputs another delivery publishes. Costs at most one query."""
        duplicates = [
            place
            for place, each in outcomes.items()
            if each.status is Status.DUPLICATE and each.outputs and received[place].lane is not None
        ]
        if not duplicates or self._origin is None:
            return set()
        keys = {place: id_key(received[place].envelope.message_id) for place in duplicates}
        history = await find_versions(self._table, name, business_id, set(keys.values()))
        others = set()
        for place, key in keys.items():
            version = None if history is None else history.find(key)
            made_by = makers(self._origin, version.batch if version else None)
            if is_published_by_another(received[place], made_by, self._lanes):
                others.add(place)
        return others

    async def _keep(self, outcomes: Sequence[Outcome]) -> None:
        """Store rejected deliveries that reached no stream as dead letters in the table."""
        if outcomes:
            await TableLetters(self._table, BatchContext(), self._clock, self._retries).keep(outcomes)
