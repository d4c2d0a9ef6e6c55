"""The runner: publishes the slices of a batch that are not sent yet, several at a time.

Killed at any point it is started again, and goes on with what is not sent. Two runners share the slices between them,
in one process each, or as tasks of Spark (`runtime.spark.publishing`). What a target promises holds all the while; see
`docs/publishing.md`.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from hashlib import sha256
from itertools import groupby, islice
from operator import attrgetter
from typing import Any

from eventstore import Table
from eventstore.port import pause_seconds
from runtime.clock import Clock, system_clock, to_datetime
from runtime.errors import BatchRefusedError, LeaseLostError, OutcomesMissingError, UsageError
from runtime.ledger.ledger import BatchRecord, BatchStatus, records
from runtime.publishing.outputs import BatchOutputs, Slices, check_ended, check_types, cut
from runtime.publishing.publisher import (
    CommittedOutput,
    Promise,
    Publisher,
    PublishOptions,
    Record,
    Result,
    SliceName,
    Target,
)
from runtime.publishing.records import Claim, Kept, Publication, Publications, SliceRecord, key_of
from runtime.retries import until_available

Show = Callable[[int, int | None], None]
"""Is told how many outputs are sent, and of how many, if that is known."""


class Tally:
    """Adds up how far slices are, and shows the sum; `of` is how many outputs all slices have."""

    def __init__(self, of: int | None, show: Show | None) -> None:
        self._of = of
        self._show = show
        self._positions: dict[int, int] = {}

    def put(self, positions: Mapping[int, int]) -> None:
        """Note how many outputs of some slices are sent, also by others, and show the sum."""
        self._positions |= positions
        if self._show is not None:
            self._show(sum(self._positions.values()), self._of)


async def _with_publishers(
    target: Target, most: int, work: Callable[[Publisher], Coroutine[Any, Any, None]]
) -> None:
    """Let publishers work, as many at once as the target allows, and raise the first error of any.

    The others have been cancelled and have ended by then.
    """

    async def with_publisher() -> None:
        publisher = target.publisher()
        try:
            await work(publisher)
        finally:
            await publisher.close()

    workers = min(most, target.publishers or most)
    tasks = [asyncio.ensure_future(with_publisher()) for _ in range(workers)]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    finally:
        await _cancelled(tasks)
    for task in done:
        task.result()


async def while_renewed(
    renew: Callable[[], Awaitable[None]], every: float, work: Coroutine[Any, Any, None]
) -> None:
    """Do some work, and renew something again and again until it is done; when that fails, cancel the work."""

    async def again_and_again() -> None:
        while True:
            await asyncio.sleep(every)
            await renew()

    working, renewing = asyncio.ensure_future(work), asyncio.ensure_future(again_and_again())
    try:
        await asyncio.wait((working, renewing), return_when=asyncio.FIRST_COMPLETED)
        first = working if working.done() else renewing
    finally:
        await _cancelled([working, renewing])
    first.result()


async def _cancelled(tasks: Sequence[asyncio.Future[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@dataclass(frozen=True, slots=True)
class Published:
    """What a runner or a redrive did: how many slices and outputs it sent, and all that is recorded by now."""

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
        sent = {number for number, each in self.found.items() if each.is_sent}
        return [number for number in range(self.publication.slices) if number not in sent]

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
        with cut(begun.outputs.tables(), begun.publication.slices) as parts:
            tally = Tally(sum(parts.counts.values()), show)
            runner = Runner(
                table, begun.publication, parts, target, options=options, tally=tally, clock=clock
            )
            await runner.run(begun.taken_over(options))
            slices, outputs = runner.slices, runner.outputs
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
    if found is None and not options.any_types:
        check_types([outputs], options.types)
    publication = await publications.begin(key, target.name, options.slices, outputs.default_slices())
    return Begun(publication, await publications.slices(publication), outputs)


async def find_unpublished(
    table: Table, target: Target, types: Sequence[str], out: str | None
) -> list[tuple[BatchRecord, bool]]:
    """Return the batches that a target has not taken all outputs of, in their order, and whether it refused some.

    Left out are batches that have not ended, or have no outputs. A request for each 1,000 batches, and three for each
    with outputs. Raises `UsageError` for a type that is that of no output which is to be published for the first time.
    """
    publications, new, found = Publications(table, system_clock), [], []
    async for record in records(table):
        if record.status is not BatchStatus.PUBLISHED or not record.counts.get("outputs", record.rounds):
            continue
        begun = await publications.find(key_of(record, target, types))
        if begun is None:
            found.append((record, False))
            if types:
                with suppress(OutcomesMissingError, BatchRefusedError):  # which whoever publishes it tells of
                    new.append(BatchOutputs.of(record, out or record.out))
            continue
        is_refused = any(each.result.is_letter for each in await publications.records(begun))
        if is_refused or Begun(begun, await publications.slices(begun), None).waiting:
            found.append((record, is_refused))
    check_types(new, types)
    return sorted(found, key=lambda each: each[0].number)


class Runner:
    """Sends those slices of a publication that are cut, as far as they are not sent, and counts what it has sent."""

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
        self.slices = self.outputs = 0
        self._publication = publication
        self._publications = Publications(table, clock)
        self._cut = cut
        self._target = target
        self._options = options
        self._tally = tally
        self._clock = clock

    async def run(self, dead: Collection[str] = ()) -> None:
        """Send until the slices are sent. Claims with the tokens `dead` are those of runners that run no more."""
        await until_available(self._options.attempts, partial(self._target.prepare, self._cut.types))
        one_at_a_time = asyncio.Lock()
        async with aclosing(self._claimed(dead)) as claimed:

            async def work(publisher: Publisher) -> None:
                while True:
                    async with one_at_a_time:
                        claim = await anext(claimed, None)
                    if claim is None:
                        return
                    await self._send(publisher, claim)

            await _with_publishers(self._target, self._options.concurrency, work)

    async def _claimed(self, dead: Collection[str]) -> AsyncGenerator[Claim, None]:
        """Yield slices that nobody else sends, until all are sent; waits for those that others send."""
        holder, waits = f"{socket.gethostname()}:{os.getpid()}", 0
        while True:
            found = await self._publications.slices(self._publication)
            self._tally.put({each: found[each].position for each in self._cut.numbers if each in found})
            waiting = [each for each in self._cut.numbers if each not in found or not found[each].is_sent]
            if not waiting:
                return
            for number in waiting:
                seen = found.get(number)
                if seen is not None:
                    if seen.lease.expires_at > self._clock() and seen.lease.token not in dead:
                        continue
                    self._check_window(seen)
                claim = await self._publications.claim(
                    self._publication, number, seen, holder, self._options.lease
                )
                if claim is not None:
                    waits = 0
                    yield claim
            waits += 1
            await asyncio.sleep(pause_seconds(waits, 0.05, 2.0))

    def _check_window(self, seen: SliceRecord) -> None:
        """Raise `UsageError` when the target may have forgotten by now what it received of a slice."""
        window = self._target.window
        age = timedelta(microseconds=self._clock() - seen.first_at)
        if window is not None and age > window and not self._options.force:
            raise UsageError(
                f"A slice that was begun at {to_datetime(seen.first_at):%Y-%m-%d %H:%M:%S} UTC is not sent, and "
                f"{self._target.name} recognises duplicates for {window} only: what was sent of it would arrive "
                f"twice. If the receiver can take that, add --force."
            )

    async def _send(self, publisher: Publisher, claim: Claim) -> None:
        """Send a slice while the claim on it is renewed; leave it to whoever has claimed it since."""
        every = self._options.lease.total_seconds() / 3
        attempt = partial(self._attempt, publisher, claim)
        work = until_available(self._options.attempts, attempt, roll_back=publisher.roll_back)
        try:
            await while_renewed(claim.renew, every, work)
        except LeaseLostError:
            await publisher.roll_back()
        except BaseException:
            with suppress(Exception):  # the first error is the one to tell of
                await publisher.roll_back()
                await claim.release()
            raise

    async def _attempt(self, publisher: Publisher, claim: Claim) -> None:
        """Send what is not noted as sent of a slice, chunk by chunk, and end it."""
        is_transactional = self._target.promise is Promise.EXACTLY_ONCE
        position, sent = 0 if is_transactional else claim.position, 0
        if await publisher.open(SliceName(self._publication.marker, claim.number)):
            outputs = islice(self._cut.outputs(claim.number), position, None)
            while chunk := list(islice(outputs, self._target.chunk)):
                position += len(chunk)
                records = await publisher.send(chunk)
                sent += len(chunk) - sum(each.result is not Result.SENT for each in records)
                if records or not is_transactional:
                    await claim.note(position, records)
                self._tally.put({claim.number: position})
            await publisher.commit()
        else:
            position = max(position, self._cut.counts.get(claim.number, 0))
        await claim.finish(position)
        self.slices += 1
        self.outputs += sent
        self._tally.put({claim.number: position})


# Sending again what a target refused: each output by itself, once its cause is mended.
#
# An output that the target takes is a dead letter no more; one that it refuses again stays, with the new reason. Each
# is noted as in doubt before it is sent, so of two redrives one sends it. A redrive that was killed is started again:
# in a target with transactions each output has a marker of its own, and a receiver of HTTP knows the key.


async def letters(table: Table, record: BatchRecord, target: Target, types: Sequence[str] = ()) -> Published:
    """Return what a target has refused of a batch, and send nothing. Raises `UsageError` when it was not published."""
    publications = Publications(table, system_clock)
    publication = await _find(publications, record, target, types)
    return Published(publication, 0, 0, await publications.records(publication))


async def redrive(
    table: Table,
    record: BatchRecord,
    out: str,
    target: Target,
    options: PublishOptions | None = None,
    *,
    clock: Clock = system_clock,
    show: Show | None = None,
) -> Published:
    """Send again what a target has refused of a batch, in order for each business object.

    Reads the outcomes once. Costs two requests for each output, beside those of the target. Raises `UsageError` when
    the batch was not published to the target, and `TargetError` as `publish` does.
    """
    options, publications = options or PublishOptions(), Publications(table, clock)
    publication = await _find(publications, record, target, options.types)
    kept = await publications.kept(publication)
    found = {each.record.message_id: each for each in kept if each.record.result.is_letter}
    sent = 0
    if found:
        outputs = BatchOutputs.of(record, out, options.types)
        with cut(outputs.with_ids(list(found)), 1) as only:
            await until_available(options.attempts, partial(target.prepare, only.types))
            tally = Tally(len(found), show)
            by_object = (list(some) for _, some in groupby(only.outputs(0), attrgetter("business_id")))

            async def work(publisher: Publisher) -> None:
                nonlocal sent
                for some in by_object:  # the publishers share the iterator
                    for output in some:
                        letter = found[output.message_id]
                        if await _send_again(
                            publications, publication, publisher, letter, output, attempts=options.attempts
                        ):
                            sent += 1
                            tally.put({0: sent})

            await _with_publishers(target, options.concurrency, work)
    return Published(publication, 0, sent, await publications.records(publication))


async def _find(
    publications: Publications, record: BatchRecord, target: Target, types: Sequence[str]
) -> Publication:
    found = await publications.find(key_of(record, target, types))
    if found is None:
        raise UsageError(
            f"Batch {record.batch_id} was not published to {target.name}, or with another --map or other --types: name "
            f"these as they were then."
        )
    return found


async def _send_again(
    publications: Publications,
    publication: Publication,
    publisher: Publisher,
    letter: Kept,
    output: CommittedOutput,
    *,
    attempts: int,
) -> bool:
    """Send a letter again as a slice of its own, and return whether the target has taken it."""
    why = "It was about to be sent again when the process ended: whether it was is not known."
    in_doubt = letter.record._replace(result=Result.UNKNOWN, why=why)
    kept = await publications.change(publication, letter, in_doubt)
    if kept is None:
        return False  # somebody else sends it
    digest = sha256(output.message_id.encode()).hexdigest()[:32]
    name = SliceName(f"{publication.key}-again-{digest}", 0, is_redrive=True)

    async def attempt() -> Record | None:
        if not await publisher.open(name):
            return None
        records = await publisher.send([output])
        if records and records[0].result.is_letter:
            await publisher.roll_back()
        else:
            await publisher.commit()
        return records[0] if records else None

    record = await until_available(attempts, attempt, roll_back=publisher.roll_back)
    if record is None:
        await publications.drop(publication, in_doubt)
        return True
    await publications.change(publication, kept, record)
    return not record.result.is_letter
