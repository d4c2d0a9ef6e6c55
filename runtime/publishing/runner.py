"""The runner: publishes the slices of a batch that are not out yet, several at a time.

Killed at any point it is started again, and goes on with what is not out. Two runners share the slices between them.
What a target promises holds all the while; see `docs/publishing.md`.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from itertools import islice

from eventstore import Table
from eventstore.backoff import pause_seconds
from runtime.batches.record import BatchRecord
from runtime.clock import Clock, system_clock, to_datetime
from runtime.errors import LeaseLostError, TargetUnavailableError, UsageError
from runtime.publishing.claims import Claim, Claims
from runtime.publishing.publisher import Publisher, Refused, SliceName, Target
from runtime.publishing.records import Publication, Publications, SliceRecord, key_of
from runtime.publishing.slices import BatchOutputs, CommittedOutput, Slices
from runtime.publishing.tasks import all_or_first_error, while_renewed

_IN_DOUBT = (
    "It was about to be sent when the process ended: whether it was is not known, and it is not sent again."
)

Show = Callable[[int, int], None]
"""Is told how many slices are out, and of how many."""


@dataclass(frozen=True, kw_only=True)
class PublishOptions:
    """How a batch is published.

    `types` are the message types that are published, by default all; they and the names of the `target` are part of
    what a publication is. `lease` is for how long a slice is claimed; `take_over` claims also what another runner
    held when this one began, and `force` resumes later than the target recognises duplicates.
    """

    types: Sequence[str] = ()
    slices: int | None = None
    concurrency: int = 4
    attempts: int = 8
    lease: timedelta = timedelta(minutes=1)
    take_over: bool = False
    force: bool = False


@dataclass(frozen=True, slots=True)
class Published:
    """What a runner did: how many slices and outputs it sent, and all that the target has refused by now."""

    publication: Publication
    slices: int
    outputs: int
    refused: Sequence[Refused]


async def publish(
    table: Table,
    record: BatchRecord,
    out: str,
    target: Target,
    options: PublishOptions | None = None,
    *,
    clock: Clock = system_clock,
    show: Show | None = None,
) -> Published:
    """Publish what is not out yet of a batch; return when all of it is.

    Reads the outcomes once. Costs two requests for each slice, and one more for each chunk that a target without
    transactions takes. Raises `BatchRefusedError` for a batch that has not ended, `TargetError` when the target refuses
    or does not answer: the rest can be resumed.
    """
    options = options or PublishOptions()
    outputs = BatchOutputs.of(record, out, options.types)
    publications = Publications(table, clock)
    key = key_of(record, target, options.types)
    publication = await publications.begin(key, target.name, options.slices, outputs.default_slices())
    with outputs.sliced(publication.slices) as cut:
        await target.prepare(cut.types)
        holder = f"{socket.gethostname()}:{os.getpid()}"
        claims = Claims(table, clock, publication, holder, options.lease)
        runner = _Runner(publications, claims, cut, target, options=options, show=show)
        await runner.run()
    refused = await publications.refused(publication)
    return Published(publication, runner.slices, runner.outputs, refused)


class _Runner:
    """Sends what is not out yet of one publication."""

    def __init__(
        self,
        publications: Publications,
        claims: Claims,
        cut: Slices,
        target: Target,
        *,
        options: PublishOptions,
        show: Show | None,
    ) -> None:
        self.slices = 0
        self.outputs = 0
        self._publications = publications
        self._claims = claims
        self._cut = cut
        self._target = target
        self._options = options
        self._show = show
        self._one_at_a_time = asyncio.Lock()

    async def run(self) -> None:
        """Send until all slices are out."""
        workers = min(self._options.concurrency, self._target.publishers or self._options.concurrency)
        async with aclosing(self._claimed()) as claimed:
            await all_or_first_error([self._work(claimed) for _ in range(workers)])

    async def _work(self, claimed: AsyncGenerator[Claim, None]) -> None:
        publisher = self._target.publisher()
        try:
            while True:
                async with self._one_at_a_time:
                    claim = await anext(claimed, None)
                if claim is None:
                    return
                await self._hold(publisher, claim)
        finally:
            await publisher.close()

    async def _claimed(self) -> AsyncGenerator[Claim, None]:
        """Give slices that nobody else sends, until all are out; waits for those that others send."""
        found = await self._publications.slices(self._claims.publication)
        dead = {each.token for each in found.values()} if self._options.take_over else set()
        waits = 0
        while True:
            waiting = [each for each in range(self._cut.count) if each not in found or not found[each].is_out]
            if self._show:
                self._show(self._cut.count - len(waiting), self._cut.count)
            if not waiting:
                return
            for number in waiting:
                seen = found.get(number)
                if self._claims.is_free(seen) or (seen and seen.token in dead):
                    self._check_window(seen)
                    claim = await self._claims.take(number, seen)
                    if claim is not None:
                        waits = 0
                        yield claim
            waits += 1
            await asyncio.sleep(pause_seconds(waits, 0.05, 2.0))
            found = await self._publications.slices(self._claims.publication)

    def _check_window(self, seen: SliceRecord | None) -> None:
        """Raise `UsageError` when the target may have forgotten by now what it received of a slice."""
        window = self._target.window
        if seen is None or window is None or self._options.force:
            return
        age = timedelta(microseconds=self._claims.clock() - seen.first_at)
        if age > window:
            message = (
                f"A slice that was begun at {to_datetime(seen.first_at):%Y-%m-%d %H:%M:%S} UTC is not out, and "
                f"{self._target.name} recognises duplicates for {window} only: what was sent of it would arrive twice. "
                f"If the receiver can take that, add --force."
            )
            raise UsageError(message)

    async def _hold(self, publisher: Publisher, claim: Claim) -> None:
        """Send a slice while the claim on it is renewed; leave it to whoever has claimed it since."""
        every = self._options.lease.total_seconds() / 3
        try:
            await while_renewed(claim.renew, every, self._send(publisher, claim))
        except LeaseLostError:
            await publisher.roll_back()
        except BaseException:
            with suppress(Exception):  # the first error is the one to tell of
                await publisher.roll_back()
                await claim.release()
            raise

    async def _send(self, publisher: Publisher, claim: Claim) -> None:
        failures = 0
        while True:
            try:
                return await self._attempt(publisher, claim)
            except TargetUnavailableError:
                failures += 1
                if failures >= self._options.attempts:
                    raise
                await publisher.roll_back()
                await asyncio.sleep(pause_seconds(failures, 0.1, 10.0))

    async def _attempt(self, publisher: Publisher, claim: Claim) -> None:
        """Send what is not noted as sent of a slice, and end it."""
        position = 0 if self._target.promise.is_transactional else claim.record.position
        sent = 0
        if await publisher.open(SliceName(self._claims.publication.marker, claim.number)):
            await self._give_up_what_is_in_doubt(claim)
            for chunk in self._chunks(claim.number, position):
                position += len(chunk)
                sent += len(chunk)
                await self._send_chunk(publisher, claim, chunk, position)
            await publisher.commit()
        await claim.finish(position)
        self.slices += 1
        self.outputs += sent

    async def _send_chunk(
        self, publisher: Publisher, claim: Claim, chunk: Sequence[CommittedOutput], position: int
    ) -> None:
        promise = self._target.promise
        if promise.is_noted_before:
            await claim.note(position, in_doubt=len(chunk))
        refused = await publisher.send(chunk)
        if refused or not (promise.is_noted_before or promise.is_transactional):
            await claim.note(position, refused=refused)

    async def _give_up_what_is_in_doubt(self, claim: Claim) -> None:
        if claim.record.in_doubt:
            position = claim.record.position
            lost = islice(self._cut.outputs(claim.number), position - claim.record.in_doubt, position)
            refused = [Refused(each.message_id, each.type, each.business_id, _IN_DOUBT) for each in lost]
            await claim.note(position, refused=refused)

    def _chunks(self, number: int, position: int) -> Iterator[list[CommittedOutput]]:
        outputs = islice(self._cut.outputs(number), position, None)
        return iter(partial(_next_chunk, outputs, self._target.chunk), [])


def _next_chunk(outputs: Iterator[CommittedOutput], length: int) -> list[CommittedOutput]:
    return list(islice(outputs, length))
