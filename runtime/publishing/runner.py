"""The runner: publishes the slices of a batch that are not sent yet, several at a time.

Killed at any point it is started again, and goes on with what is not sent. Two runners share the slices between them,
in one process each, or as tasks of Spark (`runtime.spark.publishing`). What a target promises holds all the while; see
`docs/publishing.md`.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import timedelta

from eventstore import Table
from eventstore.backoff import pause_seconds
from runtime.batches.record import BatchRecord
from runtime.clock import Clock, system_clock, to_datetime
from runtime.errors import UsageError
from runtime.publishing.claims import Claim, Claims
from runtime.publishing.outputs import BatchOutputs, check_ended
from runtime.publishing.publisher import Record, Target
from runtime.publishing.records import Publication, Publications, SliceRecord, key_of
from runtime.publishing.sending import Sender
from runtime.publishing.slices import Slices
from runtime.publishing.tally import Show, Tally
from runtime.publishing.tasks import all_or_first_error


@dataclass(frozen=True, kw_only=True)
class PublishOptions:
    """How a batch is published."""

    types: Sequence[str] = ()
    """The message types that are published, by default all; part of what a publication is."""
    slices: int | None = None
    concurrency: int = 4
    """How many slices are sent at once."""
    attempts: int = 8
    lease: timedelta = timedelta(minutes=1)
    """For how long a slice is claimed."""
    take_over: bool = False
    """Claim also what another runner held when this one began."""
    force: bool = False
    """Resume later than the target recognises duplicates."""


@dataclass(frozen=True, slots=True)
class Published:
    """What a runner did: how many slices and outputs it sent, and all that is recorded by now."""

    publication: Publication
    slices: int
    outputs: int
    records: Sequence[Record]

    @property
    def refused(self) -> list[Record]:
        """The dead letters: what the target has refused for good."""
        return [each for each in self.records if each.result.is_letter]


@dataclass(frozen=True, slots=True)
class Begun:
    """A publication that is under way: its slices that were begun, by number, and the outputs to be cut into slices.

    When all slices are sent there are no `outputs`: the outcomes were not looked at, and need not be there any more.
    """

    publication: Publication
    found: Mapping[int, SliceRecord]
    outputs: BatchOutputs | None

    @property
    def waiting(self) -> list[int]:
        """The numbers of the slices that are not sent."""
        return [
            each
            for each in range(self.publication.slices)
            if each not in self.found or not self.found[each].is_sent
        ]

    def taken_over(self, options: PublishOptions) -> frozenset[str]:
        """Return the tokens of the claims that nobody needs to wait for."""
        return frozenset(each.lease.token for each in self.found.values() if options.take_over)


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
    """Publish what is unpublished of a batch; return when all of it is.

    Reads the outcomes once, unless all is sent. Costs two requests for each slice, and one more for each chunk that a
    target without transactions takes. Raises `BatchRefusedError` for a batch that has not ended, `TargetError` when the
    target refuses or does not answer: the rest can be resumed.
    """
    options = options or PublishOptions()
    begun = await begin(table, record, out, target, options=options, clock=clock)
    slices = outputs = 0
    if begun.outputs is not None:
        with begun.outputs.sliced(begun.publication.slices) as cut:
            tally = Tally(sum(cut.counts.values()), show)
            runner = Runner(table, begun.publication, cut, target, options=options, tally=tally, clock=clock)
            await runner.run(begun.taken_over(options))
            slices, outputs = runner.sender.slices, runner.sender.outputs
    records = await Publications(table, clock).records(begun.publication)
    return Published(begun.publication, slices, outputs, records)


async def begin(
    table: Table, record: BatchRecord, out: str, target: Target, *, options: PublishOptions, clock: Clock
) -> Begun:
    """Begin to publish a batch, or find how far that is. Three or four requests; raises what `publish` does."""
    check_ended(record)
    publications = Publications(table, clock)
    key = key_of(record, target, options.types)
    found = await publications.find(key)
    if found is not None:
        found.check_slices(options.slices)
        begun = Begun(found, await publications.slices(found), None)
        if not begun.waiting:
            return begun
    outputs = BatchOutputs.of(record, out, options.types)
    publication = await publications.begin(key, target.name, options.slices, outputs.default_slices())
    return Begun(publication, await publications.slices(publication), outputs)


class Runner:
    """Sends those slices of a publication that are cut, as far as they are not sent."""

    def __init__(
        self,
        table: Table,
        publication: Publication,
        cut: Slices,
        target: Target,
        *,
        options: PublishOptions,
        tally: Tally,
        clock: Clock = system_clock,
    ) -> None:
        self.sender = Sender(publication, cut, target, options.attempts, options.lease, tally)
        self._publications = Publications(table, clock)
        holder = f"{socket.gethostname()}:{os.getpid()}"
        self._claims = Claims(table, clock, publication, holder, options.lease)
        self._options = options
        self._one_at_a_time = asyncio.Lock()

    async def run(self, dead: Collection[str] = ()) -> None:
        """Send until the slices are sent. Claims with the tokens `dead` are those of runners that run no more."""
        target, concurrency = self.sender.target, self._options.concurrency
        await target.prepare(self.sender.cut.types)
        workers = min(concurrency, target.publishers or concurrency)
        async with aclosing(self._claimed(dead)) as claimed:
            await all_or_first_error([self._work(claimed) for _ in range(workers)])

    async def _work(self, claimed: AsyncGenerator[Claim, None]) -> None:
        publisher = self.sender.target.publisher()
        try:
            while True:
                async with self._one_at_a_time:
                    claim = await anext(claimed, None)
                if claim is None:
                    return
                await self.sender.send(publisher, claim)
        finally:
            await publisher.close()

    async def _claimed(self, dead: Collection[str]) -> AsyncGenerator[Claim, None]:
        """Yield slices that nobody else sends, until all are sent; waits for those that others send."""
        waits = 0
        while True:
            found = await self._found()
            waiting = [
                each for each in self.sender.cut.numbers if each not in found or not found[each].is_sent
            ]
            if not waiting:
                return
            for number in waiting:
                seen = found.get(number)
                if self._claims.is_free(seen) or (seen and seen.lease.token in dead):
                    self._check_window(seen)
                    claim = await self._claims.take(number, seen)
                    if claim is not None:
                        waits = 0
                        yield claim
            waits += 1
            await asyncio.sleep(pause_seconds(waits, 0.05, 2.0))

    async def _found(self) -> Mapping[int, SliceRecord]:
        """Return the slices that were begun, and show how far all are."""
        found = await self._publications.slices(self.sender.publication)
        for number in self.sender.cut.numbers:
            if number in found:
                self.sender.tally.put(number, found[number].position)
        self.sender.tally.show()
        return found

    def _check_window(self, seen: SliceRecord | None) -> None:
        """Raise `UsageError` when the target may have forgotten by now what it received of a slice."""
        window = self.sender.target.window
        if seen is None or window is None or self._options.force:
            return
        age = timedelta(microseconds=self._claims.clock() - seen.first_at)
        if age > window:
            message = (
                f"A slice that was begun at {to_datetime(seen.first_at):%Y-%m-%d %H:%M:%S} UTC is not sent, and "
                f"{self.sender.target.name} recognises duplicates for {window} only: what was sent of it would arrive "
                f"twice. If the receiver can take that, add --force."
            )
            raise UsageError(message)
