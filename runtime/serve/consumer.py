"""The consumer: reads ahead, handles each stream in order and all streams concurrently, publishes, then acknowledges.

Three activities share one event loop: the reader, the work on streams (`runtime.serve.streams`), and the settler, which
publishes the outputs of finished messages and acknowledges the messages. While a transaction is under way, messages
gather for the next one. Transactions therefore grow with the load, and no message waits for others to arrive.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Self

from eventstore import Table
from eventstore.port import pause_seconds
from handlers import App
from runtime.clock import Clock, system_clock
from runtime.errors import MissingExtraError, UsageError
from runtime.ledger.ledger import STATE_BASED, Ledger
from runtime.ledger.settings import TableSettings
from runtime.retries import first_error
from runtime.serve.messages import (
    Countable,
    Lane,
    Received,
    Source,
    SourceUnavailableError,
    Stage,
    nothing,
    open_settlement,
    open_source,
)
from runtime.serve.options import ServeOptions
from runtime.serve.streams import FIRST_SECONDS, LOG, LONGEST_SECONDS, Streams, Troubles
from runtime.supervision import consumer_watch, supervised
from runtime.telemetry import Metrics, has_meters

Counts = Mapping[str, int]
"""The number of deliveries with each status, and the number of outputs `published`."""

_CHUNK = 2_000  # the maximum number of messages that are read or settled at once
_CLOSE_SECONDS = 4
_MEASURE_SECONDS = 5


class Consumer:
    """Handles the messages of a source in the handlers of an app, and sends the outputs to a target.

    `source` and `target` are URLs (docs/serve.md). Without a target, outputs are dropped. `run` returns when the source
    ends or after `stop`. In an ASGI lifespan, use the consumer as a context manager: it runs during the block.

    Raises `UsageError` for an invalid URL. `run` raises `UsageError` for a table of another app.
    """

    def __init__(
        self,
        app: App,
        *,
        table: Table,
        source: str | Source,
        target: str | None = None,
        options: ServeOptions | None = None,
        clock: Clock = system_clock,
    ) -> None:
        self._options = options or ServeOptions()
        self._app, self._table, self._clock = app, table, clock
        decoding = self._options.decoding
        self._source = open_source(source, decoding) if isinstance(source, str) else source
        self._settlement = open_settlement(target, self._source, self._options.names)
        self._letters = open_settlement(self._options.dead_letters, None, self._options.names)
        self._troubles = Troubles()
        self._published = 0
        self._metrics = Metrics(is_on=self._options.health_port is not None or has_meters())
        self._streams: Streams | None = None
        self._lanes: dict[str, Lane] = {}
        self._loose: list[Received] = []  # finished deliveries of a queue
        self._queued: dict[Received, None] = {}  # unsettled deliveries of a queue, in order
        self._held, self._held_bytes = 0, 0
        self._waiting: dict[tuple[str, ...], int] = {}  # the length of a queue that counts its messages
        self._stops_at: float | None = None
        self._limit: asyncio.Timeout | None = None  # the time limit of opening, then of reading
        self._has_ended = False
        self._task: asyncio.Task[Counts] | None = None

    @property
    def counts(self) -> Counts:
        """The number of deliveries with each status, and of published outputs, so far."""
        handled = self._streams.counts if self._streams else Counter[str]()
        return {**handled, "published": self._published}

    @property
    def held(self) -> int:
        """The number of messages that were read but not yet acknowledged."""
        return self._held

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self.run())
        return self

    async def __aexit__(self, *error: object) -> None:
        self.stop()
        if self._task is not None:
            await self._task

    def stop(self) -> None:
        """Stop reading. `run` ends when all messages that were read are settled, or else after `options.drain`."""
        if self._stops_at is None:
            seconds = self._options.drain.total_seconds()
            self._stops_at = asyncio.get_running_loop().time() + seconds
            if self._limit is not None:
                with suppress(RuntimeError):  # it neither opens nor reads
                    self._limit.reschedule(self._stops_at)

    async def run(self) -> Counts:
        """Consume until the source ends, or `stop` is called. Return the counts."""
        self._loop = asyncio.get_running_loop()
        self._has_finished, self._has_settled = asyncio.Event(), asyncio.Event()
        self._works: set[asyncio.Task[None]] = set()
        self._stop_probes: Callable[[], Awaitable[None]] = nothing
        try:
            await Ledger(self._table, self._clock).check_table(STATE_BASED)
            settings = await TableSettings.claim(self._table, self._app)
            seconds = self._options.handler_timeout.total_seconds()
            notes = self._options.crashes or f"{tempfile.gettempdir()}/consistent-serve-{os.getuid()}"
            with consumer_watch(self._table, seconds, Path(notes)) as watch:
                return await self._consume(supervised(self._app.keyed(settings.draw_key), watch))
        finally:
            self._has_ended = True
            for close in (self._settlement.close, self._letters.close, self._source.close, self._stop_probes):
                try:
                    await asyncio.wait_for(close(), _CLOSE_SECONDS)
                except Exception as error:  # noqa: BLE001 - the others are closed too, and the first error is raised
                    LOG.warning("closing failed: %s", error)

    async def _consume(self, app: App) -> Counts:
        self._stop_probes = await self._answer_probes()
        try:
            async with asyncio.timeout_at(self._stops_at) as self._limit:
                opening = partial(self._source.open, self)
                await self._troubles.until_it_answers(f"the source {self._source.name}", opening)
                await self._settlement.open()
                await self._letters.open()
            self._streams = Streams(
                app, self._table, self._source, self._options,
                clock=self._clock, troubles=self._troubles, lanes=self._lanes, done=self._finished,
                metrics=self._metrics,
            )  # fmt: skip
            with first_error():
                async with asyncio.TaskGroup() as self._tasks:
                    settler = self._tasks.create_task(self._settle_all())
                    measurer = self._tasks.create_task(self._measure_all())
                    try:
                        async with asyncio.timeout_at(self._stops_at) as self._limit:
                            await self._read_all(self._streams)
                    except TimeoutError:
                        if not self._limit.expired():
                            raise
                    for task in (settler, measurer, *self._works):
                        task.cancel()
            if self._held:
                LOG.warning("stopped with %s messages unfinished, which will be redelivered", self._held)
        except TimeoutError:
            if self._limit is None or not self._limit.expired():
                raise
        return self.counts

    async def _read_all(self, streams: Streams) -> None:
        """Read until the source ends or the consumer stops, then wait until all messages are settled."""
        is_at_end, failures = False, 0
        while self._held or not (is_at_end or self._stops_at is not None):
            if is_at_end:
                await _passed(self._has_settled)
                continue
            room = self._room()
            try:
                some = await self._source.read(min(room, _CHUNK), self._options.linger_ms / 1000)
            except SourceUnavailableError as error:
                failures += 1
                self._troubles.add(f"the source {self._source.name}", error)
                await asyncio.sleep(pause_seconds(failures, FIRST_SECONDS, LONGEST_SECONDS))
                continue
            failures, is_at_end = 0, some is None
            if room:
                self._troubles.end(f"the source {self._source.name}")
            for received in some or ():
                self._take(received, streams)

    def _room(self) -> int:
        """Return how many messages may be read: 0 when stopping, when full, or if the store or a target is down."""
        is_full = self._held_bytes >= self._options.read_ahead_bytes
        others = self._troubles.keys() - {f"the source {self._source.name}"}
        is_paused = self._stops_at is not None or is_full or others
        return 0 if is_paused else max(self._options.read_ahead - self._held, 0)

    def _take(self, received: Received, streams: Streams) -> None:
        if received.is_lost:
            return
        if received.lane is not None:
            received.lane.newest = received.offset
            received.lane.waiting[received.offset] = received
        else:
            self._queued[received] = None
        self._held += 1
        self._held_bytes += received.size
        for work in streams.add(received):
            task = self._tasks.create_task(work)
            self._works.add(task)
            task.add_done_callback(self._works.discard)

    def _finished(self, received: Received) -> None:
        if received.lane is None:
            self._loose.append(received)
        self._has_finished.set()

    async def _settle_all(self) -> None:
        while True:
            ready, self._loose = self._loose[:_CHUNK], self._loose[_CHUNK:]
            for lane in self._lanes.values():
                if not lane.is_lost:
                    ready += lane.finished(_CHUNK - len(ready))
            if ready:
                await self._settle(ready)
            else:
                await _passed(self._has_finished)

    async def _settle(self, ready: Sequence[Received]) -> None:
        """Publish outputs of finished deliveries, then acknowledge the deliveries. Retries until services answer."""

        async def send_letters() -> None:
            letters = [letter for each in ready if not each.is_lost for letter in each.letters]
            await self._letters.settle(letters, ())

        async def publish() -> int:
            kept = [each for each in ready if not each.is_lost]
            outputs = [output for each in kept for output in each.outputs]
            if kept:
                await self._settlement.settle(outputs, kept)
            return len(outputs)

        until_it_answers = self._troubles.until_it_answers
        # Not "the store": a flush that succeeds does not show that the store answers other calls.
        await until_it_answers("the disk of the store", self._table.barrier)
        await until_it_answers(f"the target {self._letters.name}", send_letters)
        count = await until_it_answers(f"the target {self._settlement.name}", publish)
        self._published += count
        self._metrics.add("published_outputs", count)
        settled = [each for each in ready if not each.is_lost]
        for each in settled:
            if each.lane is not None:
                del each.lane.waiting[each.offset]
                each.lane.base = each.offset + 1
        self._release(settled)

    def _release(self, received: Collection[Received]) -> None:
        self._held -= len(received)
        self._held_bytes -= sum(each.size for each in received)
        for each in received:
            self._queued.pop(each, None)
        self._has_settled.set()

    async def _measure_all(self) -> None:
        while self._metrics.is_on:
            if isinstance(self._source, Countable):
                with suppress(SourceUnavailableError, TimeoutError):
                    async with asyncio.timeout(_MEASURE_SECONDS):
                        self._waiting = {(self._source.name,): await self._source.waiting()}
            self._measure()
            await asyncio.sleep(_MEASURE_SECONDS)

    def _measure(self) -> None:
        """Update the gauges of the metrics."""
        lanes = [*self._lanes.values()]
        unsettled = [self._queued, *(lane.waiting.values() for lane in lanes)]
        oldest = [next(iter(each), None) for each in unsettled]
        times = [time for each in oldest if each and (time := each.envelope.enqueued_at) is not None]
        age = max(self._clock() - min(times), 0) / 1e6 if times else 0.0
        lags: dict[tuple[str, ...], int] = {
            (lane.name,): max(end - lane.base, 0) for lane in lanes if (end := lane.end()) is not None
        }
        self._metrics.set("held_messages", {(): self._held})
        self._metrics.set("oldest_message_age", {(): age})
        self._metrics.set("source_lag", self._waiting or lags)
        self._metrics.set("unavailable_services", {(): len(self._troubles)})

    # Calls of the source, from its own thread.

    def assigned(self, lanes: Collection[Lane]) -> None:
        """Start to handle the deliveries of these lanes."""
        self._loop.call_soon_threadsafe(self._lanes.update, {lane.name: lane for lane in lanes})

    def revoked(self, lanes: Collection[Lane]) -> None:
        """Finish the started deliveries of these lanes, and drop the rest. Blocks the thread of the source."""
        future = asyncio.run_coroutine_threadsafe(self._drain(lanes), self._loop)
        with suppress(TimeoutError):
            future.result(self._options.drain.total_seconds() + 1)

    def lost(self, lanes: Collection[Lane]) -> None:
        """Drop the deliveries of these lanes."""
        for lane in lanes:
            lane.is_lost = True  # at once, even while the loop is busy
        self._loop.call_soon_threadsafe(self._forget, lanes)

    async def _drain(self, lanes: Collection[Lane]) -> None:
        """Drop deliveries that were not started, wait up to `options.drain` for the others, and remove the lanes."""
        ends_at = self._loop.time() + self._options.drain.total_seconds()
        _drop(lanes)
        while not self._has_ended and self._loop.time() < ends_at:
            oldest = [next(iter(lane.waiting.values()), None) for lane in lanes]
            if not any(each and each.stage in {Stage.STARTED, Stage.DONE} for each in oldest):
                break
            await asyncio.sleep(0.005)
        self._forget(lanes)

    def _forget(self, lanes: Collection[Lane]) -> None:
        _drop(lanes)
        for lane in lanes:
            lane.is_lost = True
            self._release(lane.waiting.values())
            lane.waiting.clear()
            if self._lanes.get(lane.name) is lane:
                del self._lanes[lane.name]

    async def _answer_probes(self) -> Callable[[], Awaitable[None]]:
        """Serve `/livez` (the event loop runs), `/readyz` (all services answer) and `/metrics`.

        Return a function that stops the server.
        """
        if self._options.health_port is None:
            return nothing
        try:
            from aiohttp import web  # noqa: PLC0415 - of the extra
        except ModuleNotFoundError as error:
            raise MissingExtraError(
                f"Probes need {error.name}: pip install 'consistent-messaging[serve]'."
            ) from error

        async def live(_: Any) -> web.Response:  # noqa: ANN401 - a request
            return web.json_response({"status": "live"})

        async def ready(_: Any) -> web.Response:  # noqa: ANN401 - a request
            body = {"away": dict(self._troubles), "counts": self.counts, "held": self._held}
            return web.json_response(body, status=503 if self._troubles else 200)

        async def metrics(_: Any) -> web.Response:  # noqa: ANN401 - a request
            self._measure()
            kind = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
            return web.Response(text=self._metrics.text(), headers=kind)

        app = web.Application()
        app.add_routes([web.get("/livez", live), web.get("/readyz", ready), web.get("/metrics", metrics)])
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", self._options.health_port).start()
        except OSError as error:
            raise UsageError(f"The port of --health-port cannot be used: {error}.") from error
        LOG.info("probes and metrics are answered on http://127.0.0.1:%s", runner.addresses[0][1])
        return runner.cleanup


async def _passed(event: asyncio.Event) -> None:
    """Wait up to a second for an event, then clear it."""
    with suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), 1.0)
    event.clear()


def _drop(lanes: Collection[Lane]) -> None:
    """Drop those deliveries of the lanes that were not started. The source redelivers them."""
    for lane in lanes:
        for each in lane.waiting.values():
            if each.stage is Stage.WAITING:
                each.stage = Stage.DROPPED
