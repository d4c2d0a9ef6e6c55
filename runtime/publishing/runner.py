"""The runner: publishes the slices of a batch that are not sent yet, several at a time.

Killed at any point, it resumes with the slices that are not sent. Two runners share the slices: as processes, or as
tasks of Spark (`runtime.spark.publishing`). `docs/publishing.md` says what each target promises meanwhile.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import KW_ONLY, dataclass, field
from datetime import timedelta
from functools import partial
from hashlib import sha256
from itertools import chain, groupby, islice
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
from runtime.publishing.records import Publication, Publications, SliceClaim, SliceRecord, key_of
from runtime.retries import first_error, until_available

Show = Callable[[int, int | None], None]  # is told how many outputs are sent, of how many


async def _with_publishers(
    target: Target, most: int, work: Callable[[Publisher], Coroutine[Any, Any, None]]
) -> None:
    """Let publishers work, as many at once as the target allows; the first error cancels the others."""

    async def with_publisher() -> None:
        publisher = target.publisher()
        try:
            await work(publisher)
        finally:
            await publisher.close()

    with first_error():
        async with asyncio.TaskGroup() as group:
            for _ in range(min(most, target.publishers or most)):
                group.create_task(with_publisher())


@dataclass(frozen=True, slots=True)
class PublishResult:
    """The slices and outputs that a runner or a redrive sent, and all that is recorded by now."""

    publication: Publication
    slices: int
    outputs: int
    records: Sequence[Record]

    @property
    def refused(self) -> list[Record]:
        """The dead letters: outputs that the target has refused for good."""
        return [each for each in self.records if each.result.is_letter]


@dataclass(frozen=True, slots=True)
class PublicationProgress:
    """A publication under way: its slices that were begun, and its outputs, None when all slices are sent."""

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
) -> PublishResult:
    """Publish what is unpublished of a batch; return when all of it is.

    Reads the outcomes once, unless all is sent. Costs two requests for each slice, and one more for each chunk that a
    target without transactions takes. Raises `BatchRefusedError` for a batch that has not ended, `TargetError` when the
    target refuses or does not answer: the rest can be resumed.
    """
    options = options or PublishOptions()
    progress = await begin(table, record, out, target, options=options, clock=clock)
    publication, slices, outputs = progress.publication, 0, 0
    if progress.outputs is not None:
        with cut(progress.outputs.tables(), publication.slices) as parts:
            runner = Runner(table, publication, parts, target, options=options, clock=clock, show=show)
            await runner.run(progress.taken_over(options))
            slices, outputs = runner.slices, runner.outputs
    return PublishResult(publication, slices, outputs, await Publications(table, clock).records(publication))


async def begin(
    table: Table, record: BatchRecord, out: str, target: Target, *, options: PublishOptions, clock: Clock
) -> PublicationProgress:
    """Begin to publish a batch, or find its publication. Two to four requests. Raises as `publish` does."""
    check_ended(record)
    publications = Publications(table, clock)
    key = key_of(record, target, options.types)
    existing = await publications.find(key, options.slices)
    if existing is not None:
        progress = PublicationProgress(existing, await publications.slices(existing), None)
        if not progress.waiting:
            return progress
    outputs = BatchOutputs.of(record, out, options.types)
    if existing is None and not options.any_types:
        check_types([outputs], options.types)
    publication = await publications.begin(key, target.name, options.slices, outputs.default_slices())
    return PublicationProgress(publication, await publications.slices(publication), outputs)


async def find_unpublished(
    table: Table, target: Target, types: Sequence[str], out: str | None
) -> list[tuple[BatchRecord, bool]]:
    """Return the batches that a target has not taken all outputs of, in their order, and whether it refused some.

    Left out are batches that have not ended, or have no outputs. A request for each 1,000 batches, and three for each
    with outputs. Raises `UsageError` for a type that is that of no output which is to be published for the first time.
    """
    publications, new, unpublished = Publications(table, system_clock), [], []
    async for record in records(table):
        if record.status is not BatchStatus.PUBLISHED or not record.counts.get("outputs", record.rounds):
            continue
        publication = await publications.find(key_of(record, target, types))
        if publication is None:
            unpublished.append((record, False))
            if types:
                with suppress(OutcomesMissingError, BatchRefusedError):  # raised again when it is published
                    new.append(BatchOutputs.of(record, out or record.out))
            continue
        is_refused = any(each.result.is_letter for each in await publications.records(publication))
        progress = PublicationProgress(publication, await publications.slices(publication), None)
        if is_refused or progress.waiting:
            unpublished.append((record, is_refused))
    check_types(new, types)
    return sorted(unpublished, key=lambda each: each[0].number)


@dataclass(eq=False)
class Runner:
    """Sends those slices of a publication that are cut and not sent, and counts the `slices` and `outputs` it sent."""

    table: Table
    publication: Publication
    cut: Slices
    target: Target
    _: KW_ONLY
    options: PublishOptions
    clock: Clock = system_clock
    show: Show | None = None
    slices: int = 0
    outputs: int = 0
    _positions: dict[int, int] = field(default_factory=dict)

    async def run(self, dead: Collection[str] = ()) -> None:
        """Send until the slices are sent. Claims with the tokens `dead` are those of runners that run no more."""
        await until_available(self.options.attempts, partial(self.target.prepare, self.cut.types))
        one_at_a_time = asyncio.Lock()
        async with aclosing(self._claimed(dead)) as claimed:

            async def work(publisher: Publisher) -> None:
                while True:
                    async with one_at_a_time:
                        claim = await anext(claimed, None)
                    if claim is None:
                        return
                    await self._send(publisher, claim)

            await _with_publishers(self.target, self.options.concurrency, work)

    def _progress(self, positions: Mapping[int, int]) -> None:
        """Show how many outputs are sent, by this runner and others."""
        self._positions |= positions
        if self.show is not None:
            self.show(sum(self._positions.values()), sum(self.cut.counts.values()))

    async def _claimed(self, dead: Collection[str]) -> AsyncGenerator[SliceClaim, None]:
        """Yield claimed slices until all are sent, waiting for slices that other runners have claimed."""
        publications = Publications(self.table, self.clock)
        holder, waits = f"{socket.gethostname()}:{os.getpid()}", 0
        while True:
            slices = await publications.slices(self.publication)
            self._progress({each: slices[each].position for each in self.cut.numbers if each in slices})
            waiting = [each for each in self.cut.numbers if each not in slices or not slices[each].is_sent]
            if not waiting:
                return
            for number in waiting:
                seen = slices.get(number)
                if seen is not None:
                    if seen.lease.expires_at > self.clock() and seen.lease.token not in dead:
                        continue
                    self._check_window(seen)
                claim = await publications.claim(self.publication, number, seen, holder, self.options.lease)
                if claim is not None:
                    waits = 0
                    yield claim
            waits += 1
            await asyncio.sleep(pause_seconds(waits, 0.05, 2.0))

    def _check_window(self, seen: SliceRecord) -> None:
        """Raise `UsageError` when the target may no longer recognise duplicates of a slice."""
        window = self.target.window
        age = timedelta(microseconds=self.clock() - seen.first_at)
        if window is not None and age > window and not self.options.force:
            raise UsageError(
                f"A slice that was begun at {to_datetime(seen.first_at):%Y-%m-%d %H:%M:%S} UTC is not sent, and "
                f"{self.target.name} recognises duplicates for {window} only: what was sent of it would arrive "
                f"twice. If the receiver can take that, add --force."
            )

    async def _send(self, publisher: Publisher, claim: SliceClaim) -> None:
        """Send a slice while the claim on it is renewed; leave it to whoever has claimed it since."""

        async def renewed() -> None:
            while True:
                await asyncio.sleep(self.options.lease.total_seconds() / 3)
                await claim.renew()

        attempt = partial(self._attempt, publisher, claim)
        try:
            with first_error():
                async with asyncio.TaskGroup() as group:
                    renewing = group.create_task(renewed())
                    await until_available(self.options.attempts, attempt, roll_back=publisher.roll_back)
                    renewing.cancel()
        except LeaseLostError:
            await publisher.roll_back()
        except BaseException:
            with suppress(Exception):  # the first error is the one to tell of
                await publisher.roll_back()
                await claim.release()
            raise

    async def _attempt(self, publisher: Publisher, claim: SliceClaim) -> None:
        """Send the unsent part of a slice, chunk by chunk, and end it."""
        is_transactional = self.target.promise is Promise.EXACTLY_ONCE
        position, sent = 0 if is_transactional else claim.position, 0
        if await publisher.open(SliceName(self.publication.marker, claim.number)):
            outputs = islice(self.cut.outputs(claim.number), position, None)
            while chunk := list(islice(outputs, self.target.chunk)):
                position += len(chunk)
                records = await publisher.send(chunk)
                sent += len(chunk) - sum(each.result is not Result.SENT for each in records)
                if records or not is_transactional:
                    await claim.note(position, records)
                self._progress({claim.number: position})
            await publisher.commit()
        else:
            position = max(position, self.cut.counts.get(claim.number, 0))
        await claim.finish(position)
        self.slices += 1
        self.outputs += sent
        self._progress({claim.number: position})


# Redrive: each refused output is sent again by itself, once its cause is mended.
#
# An output that the target takes is a dead letter no more; one that it refuses again stays, with the new reason. Each
# is noted as in doubt before it is sent, so of two redrives one sends it. A redrive that was killed is started again:
# in a target with transactions each output has a marker of its own, and a receiver of HTTP knows the key.


async def letters(table: Table, of: BatchRecord, target: Target, types: Sequence[str] = ()) -> PublishResult:
    """Return the dead letters of a batch at a target. Raises `UsageError` when it was not published there."""
    publications = Publications(table, system_clock)
    publication = await _find(publications, of, target, types)
    return PublishResult(publication, 0, 0, await publications.records(publication))


async def redrive(
    table: Table,
    record: BatchRecord,
    out: str,
    target: Target,
    options: PublishOptions | None = None,
    *,
    clock: Clock = system_clock,
    show: Show | None = None,
) -> PublishResult:
    """Send again what a target has refused of a batch, in order for each business object.

    Reads the outcomes once. Costs two requests for each output, beside those of the target. Raises `UsageError` when
    the batch was not published to the target, and `TargetError` as `publish` does.
    """
    options, publications = options or PublishOptions(), Publications(table, clock)
    publication = await _find(publications, record, target, options.types)
    etags = await publications.records_with_etags(publication)
    letters_by_id = {each.message_id: each for each in etags if each.result.is_letter}
    sent = 0
    if letters_by_id:
        outputs = BatchOutputs.of(record, out, options.types)
        with cut(outputs.with_ids(list(letters_by_id)), 1) as only:
            await until_available(options.attempts, partial(target.prepare, only.types))
            by_object = (list(some) for _, some in groupby(only.outputs(0), attrgetter("business_id")))

            async def work(publisher: Publisher) -> None:
                nonlocal sent
                for output in chain.from_iterable(by_object):  # the publishers share `by_object`
                    letter = letters_by_id[output.message_id]
                    again = partial(_send_again, publications, publication, publisher, output)
                    is_sent = await again(letter, etags[letter], attempts=options.attempts)
                    sent += is_sent
                    if is_sent and show is not None:
                        show(sent, len(letters_by_id))

            await _with_publishers(target, options.concurrency, work)
    return PublishResult(publication, 0, sent, await publications.records(publication))


async def _send_again(  # noqa: PLR0917 - `redrive` gives those of one publication first
    publications: Publications,
    publication: Publication,
    publisher: Publisher,
    output: CommittedOutput,
    letter: Record,
    etag: str,
    *,
    attempts: int,
) -> bool:
    """Send a letter again as a slice of its own, and return whether the target has taken it."""
    why = "It was about to be sent again when the process ended: whether it was is not known."
    in_doubt = letter._replace(result=Result.UNKNOWN, why=why)
    changed = await publications.change(publication, in_doubt, etag)
    if changed is None:
        return False  # another redrive sends it
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
    await publications.change(publication, record, changed)
    return not record.result.is_letter


async def _find(
    publications: Publications, record: BatchRecord, target: Target, types: Sequence[str]
) -> Publication:
    publication = await publications.find(key_of(record, target, types))
    if publication is None:
        raise UsageError(
            f"Batch {record.batch_id} was not published to {target.name}, or with another --map or other --types: name "
            f"these as they were then."
        )
    return publication
