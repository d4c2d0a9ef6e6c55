"""Publish the unsent slices of a batch concurrently, and redrive rejected outputs.

Several runners can share the slices, as processes or as Spark tasks (`runtime.spark.publishing`).
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import KW_ONLY, dataclass, field
from datetime import timedelta
from functools import partial
from hashlib import sha256
from itertools import chain, groupby, islice
from typing import Any

from eventstore import Table
from eventstore.port import pause_seconds
from runtime.clock import Clock, system_clock, to_datetime
from runtime.errors import BatchRefusedError, LeaseLostError, OutcomesMissingError, UsageError
from runtime.ledger.ledger import BatchRecord, BatchStatus, Ledger, records
from runtime.messages.outcome import Maker
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

Show = Callable[[int, int | None], None]  # called with the numbers of sent outputs and of all outputs
_ASKED_AT_ONCE = 50  # batches that are looked up concurrently, with two to five requests each


async def _with_publishers(
    target: Target, most: int, work: Callable[[Publisher], Coroutine[Any, Any, None]]
) -> None:
    """Call `work` with `most` publishers at once, or fewer if the target allows fewer. An error cancels all calls."""

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
    """The numbers of slices and outputs that this call sent or skipped, and all records of the publication."""

    publication: Publication
    slices: int
    outputs: int
    records: Collection[Record]
    skipped: Mapping[str, int] = field(default_factory=dict)  # by the batch that has published the outputs

    @property
    def refused(self) -> list[Record]:
        """The records that are dead letters."""
        return [each for each in self.records if each.result.is_letter]


@dataclass(frozen=True, slots=True)
class PublicationProgress:
    """The state of a publication when it is begun or resumed."""

    publication: Publication
    found: Mapping[int, SliceRecord]  # the slices that were begun
    outputs: BatchOutputs | None  # None if all slices are sent

    @property
    def waiting(self) -> list[int]:
        """The numbers of the unsent slices."""
        sent = {number for number, each in self.found.items() if each.is_sent}
        return [number for number in range(self.publication.slices) if number not in sent]

    def taken_over(self, options: PublishOptions) -> frozenset[str]:
        """Return the lease tokens of slices to take over at once: all if `options.take_over`, otherwise none."""
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
    """Publish the unsent outputs of a batch. Call it again after an error to resume.

    Reads the outcomes once. Costs two requests per slice, plus one per `target.chunk` outputs if the target has no
    transactions. Raises like `begin`, and `TargetError` if the target rejects outputs or does not answer.
    """
    options = options or PublishOptions()
    progress = await begin(table, record, out, target, options=options, clock=clock)
    publication, slices, outputs, skipped = progress.publication, 0, 0, Counter[str]()
    if progress.outputs is not None:
        with cut(progress.outputs.tables(), publication.slices) as parts:
            runner = Runner(table, publication, parts, target, options=options, clock=clock, show=show)
            await runner.run(progress.taken_over(options))
            slices, outputs, skipped = runner.slices, runner.outputs, runner.skipped
    records = await Publications(table, clock).records(publication)
    return PublishResult(publication, slices, outputs, records, skipped)


async def begin(
    table: Table, record: BatchRecord, out: str, target: Target, *, options: PublishOptions, clock: Clock
) -> PublicationProgress:
    """Find or begin the publication of a batch. Costs two to four requests.

    Raises `BatchRefusedError` if the batch is incomplete or does not match `options.corrections`. Raises `UsageError`
    if a type has no outputs, files are missing, or the publication has another number of slices.
    """
    check_ended(record)
    if record.is_reprocessing is not options.corrections:
        raise BatchRefusedError(
            f"Batch {record.batch_id} reprocessed a history, and its outputs are not published: use --corrections."
            if record.is_reprocessing
            else f"Batch {record.batch_id} corrects nothing: omit --corrections."
        )
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
    table: Table, target: Target, types: Sequence[str], out: str | None, *, corrections: bool = False
) -> list[tuple[BatchRecord, bool]]:
    """Return the complete batches with unsent or rejected outputs, sorted by number, and whether outputs were rejected.

    If `corrections` is set, returns only batches that reprocessed a history, otherwise only others. `out` overrides the
    recorded output folders. Costs one request for every 1,000 batches, and three per batch with outputs. Raises
    `UsageError` if a type has no outputs in the batches that were never published.
    """
    publications, new, unpublished = Publications(table, system_clock), [], []
    async for record in records(table):
        has_outputs = record.counts.get("outputs", record.rounds) and record.is_reprocessing is corrections
        if record.status is not BatchStatus.PUBLISHED or not has_outputs:
            continue
        publication = await publications.find(key_of(record, target, types))
        if publication is None:
            unpublished.append((record, False))
            if types:
                with suppress(OutcomesMissingError, BatchRefusedError):  # raised again by `publish`
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
    """Sends the unsent slices of `cut`. `slices`, `outputs` and `skipped` count only the work of this runner.

    Skips the outputs of a duplicate if the batch that made its version has published them to the target.
    """

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
    skipped: Counter[str] = field(default_factory=Counter)
    _published: set[Maker] = field(default_factory=set)  # batches whose outputs the target has
    _attempted: set[int] = field(default_factory=set)  # slices that this or another runner began to send
    _sent_before: set[str] = field(default_factory=set)  # ids of outputs of batches with dead letters
    _positions: dict[int, int] = field(default_factory=dict)

    async def run(self, dead: Collection[str] = ()) -> None:
        """Send until all slices are sent. `dead` holds the lease tokens of slices to take over at once."""
        await until_available(self.options.attempts, partial(self.target.prepare, self.cut.types))
        makers, partly = list(self.cut.makers), dict[Maker, BatchRecord]()
        for start in range(0, len(makers), _ASKED_AT_ONCE):
            some = makers[start : start + _ASKED_AT_ONCE]
            found = await asyncio.gather(*map(self._published_batch, some))
            for maker, record in zip(some, found, strict=True):
                if record is not None and record.counts.get("dead_letter"):
                    partly[maker] = record
                elif record is not None:
                    self._published.add(maker)
        if partly:
            self._look_up(partly)
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

    async def _published_batch(self, maker: Maker) -> BatchRecord | None:
        """Return the batch `maker`, or None if it is not fully published to the target. Costs two to five requests."""
        record = await Ledger(self.table, self.clock).find(maker[0])
        # The id of a pruned batch may be reused. A reprocessing publishes no outputs, only corrections.
        if record is None or record.key != maker or record.is_reprocessing:
            return None
        keys = {key_of(record, self.target, types) for types in ((), self.options.types)}
        publications = Publications(self.table, self.clock)
        return record if any([await publications.is_complete(key) for key in keys]) else None

    def _look_up(self, makers: Mapping[Maker, BatchRecord]) -> None:
        """Add to `_sent_before` the ids of outputs that `makers`, published batches with dead letters, have sent.

        An attempt of such a batch may have stored the version of a message that a later attempt rejected. The outputs
        of that version were not sent. They are missing in the batch's outcome files, which this method reads.
        """
        repeated = defaultdict[Maker, list[str]](list)
        for output in chain.from_iterable(map(self.cut.outputs, self.cut.numbers)):
            if output.made_by is not None and output.made_by in makers:
                repeated[output.made_by].append(output.message_id)
        for maker, ids in repeated.items():
            with suppress(UsageError, OSError):  # without the files, outputs are sent again
                self._sent_before |= BatchOutputs.of(makers[maker], makers[maker].out).known_ids(ids)

    def _is_sent(self, output: CommittedOutput) -> bool:
        return output.made_by in self._published or output.message_id in self._sent_before

    def _progress(self, positions: Mapping[int, int]) -> None:
        """Update the positions of slices, by number, and report the number of outputs sent by all runners."""
        self._positions |= positions
        if self.show is not None:
            self.show(sum(self._positions.values()), sum(self.cut.counts.values()))

    async def _claimed(self, dead: Collection[str]) -> AsyncGenerator[SliceClaim, None]:
        """Claim and yield slices until all are sent. Waits until leases of others expire, except those in `dead`."""
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
                    self._attempted.add(number)
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
        """Raise `UsageError` if the target may no longer recognise duplicates of a slice."""
        window = self.target.window
        age = timedelta(microseconds=self.clock() - seen.first_at)
        if window is not None and age > window and not self.options.force:
            raise UsageError(
                f"A slice that was begun at {to_datetime(seen.first_at):%Y-%m-%d %H:%M:%S} UTC is incomplete, and "
                f"{self.target.name} recognises duplicates for only {window}: resuming could send outputs twice. If "
                f"the receiver tolerates duplicates, add --force."
            )

    async def _send(self, publisher: Publisher, claim: SliceClaim) -> None:
        """Send a slice while renewing its claim. Stop without an error if another runner has claimed it."""

        async def renewed() -> None:
            while True:
                await asyncio.sleep(self.options.lease.total_seconds() / 3)
                await claim.renew()

        async def roll_back() -> None:
            await publisher.roll_back()
            await claim.renew()  # without the lease, another attempt would only disturb the other runner

        attempt = partial(self._attempt, publisher, claim)
        try:
            with first_error():
                async with asyncio.TaskGroup() as group:
                    renewing = group.create_task(renewed())
                    await until_available(self.options.attempts, attempt, roll_back=roll_back)
                    renewing.cancel()
        except LeaseLostError:
            await publisher.roll_back()
        except BaseException:
            with suppress(Exception):  # keep the first error
                await publisher.roll_back()
                await claim.release()
            raise

    async def _attempt(self, publisher: Publisher, claim: SliceClaim) -> None:
        """Send the unsent part of a slice in chunks, and commit it. Positions include skipped outputs."""
        is_transactional = self.target.promise is Promise.EXACTLY_ONCE
        position, sent, skipped = 0 if is_transactional else claim.position, 0, Counter[str]()
        if await publisher.open(SliceName(self.publication.marker, claim.number)):
            if (
                is_transactional and claim.number in self._attempted
            ):  # an attempt that did not commit left records
                ids = {each.message_id for each in self.cut.outputs(claim.number)}
                await Publications(self.table, self.clock).drop_records(self.publication, ids)
            self._attempted.add(claim.number)
            outputs = islice(self.cut.outputs(claim.number), position, None)
            while chunk := list(islice(outputs, self.target.chunk)):
                position += len(chunk)
                skipped.update(each.made_by[0] for each in chunk if each.made_by and self._is_sent(each))
                chunk = [each for each in chunk if not self._is_sent(each)]
                records = await publisher.send(chunk) if chunk else ()
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
        self.skipped += skipped
        self._progress({claim.number: position})


async def letters(table: Table, of: BatchRecord, target: Target, types: Sequence[str] = ()) -> PublishResult:
    """Return the publication of a batch to a target, with the stored record of each output that has one.

    `types` must be those of the publication, or empty if it sent all types. Raises `UsageError` if there is no such
    publication.
    """
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
    """Send the rejected outputs of a batch again, in order for each business object.

    Several redrives may run concurrently. A redrive may be repeated after a crash. Reads the outcomes once, and costs
    two requests per output. Raises `UsageError` if the batch was not published to the target, and `TargetError` like
    `publish`.
    """
    options, publications = options or PublishOptions(), Publications(table, clock)
    publication = await _find(publications, record, target, options.types)
    etags = await publications.records(publication)
    letters_by_id = {each.message_id: each for each in etags if each.result.is_letter}
    sent = 0
    if letters_by_id:
        outputs = BatchOutputs.of(record, out, options.types)
        with cut(outputs.with_ids(list(letters_by_id)), 1) as only:
            await until_available(options.attempts, partial(target.prepare, only.types))
            by_object = (list(some) for _, some in groupby(only.outputs(0), lambda each: each.business_id))

            async def work(publisher: Publisher) -> None:
                nonlocal sent
                for output in chain.from_iterable(by_object):  # all publishers draw from one iterator
                    letter = letters_by_id[output.message_id]
                    again = partial(_send_again, publications, publication, publisher, output)
                    is_sent = await again(letter, etags[letter], attempts=options.attempts)
                    sent += is_sent
                    if is_sent and show is not None:
                        show(sent, len(letters_by_id))

            await _with_publishers(target, options.concurrency, work)
    return PublishResult(publication, 0, sent, await publications.records(publication))


async def _send_again(  # noqa: PLR0917 - `redrive` binds most of them
    publications: Publications,
    publication: Publication,
    publisher: Publisher,
    output: CommittedOutput,
    letter: Record,
    etag: str,
    *,
    attempts: int,
) -> bool:
    """Send a dead letter as a slice of its own. Return False if it is rejected again or another redrive sends it."""
    # Recorded before sending, so that only one of two concurrent redrives sends it.
    why = "The process ended while sending it again: it is unknown whether it was sent."
    in_doubt = letter._replace(result=Result.UNKNOWN, why=why)
    changed = await publications.change(publication, in_doubt, etag)
    if changed is None:
        return False  # conflict: another redrive sends it
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
            f"Batch {record.batch_id} was not published to {target.name} with this --map and these --types. Use the "
            f"same options as when it was published."
        )
    return publication
