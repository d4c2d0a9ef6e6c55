"""Sending again what a target refused: each output by itself, once its cause is mended.

An output that the target takes is a dead letter no more; one that it refuses again stays, with the new reason. A
redrive that was killed is started again: in a target with transactions each output has a marker of its own, a receiver
of HTTP knows the key, and what is sent at most once is noted before it is sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import groupby
from operator import attrgetter

from eventstore import Table
from eventstore.backoff import pause_seconds
from runtime.batches.record import BatchRecord
from runtime.clock import Clock, system_clock
from runtime.errors import TargetUnavailableError, UsageError
from runtime.publishing.outputs import BatchOutputs
from runtime.publishing.publisher import Publisher, Refused, SliceName, Target
from runtime.publishing.records import Letter, Publication, Publications, key_of
from runtime.publishing.runner import PublishOptions
from runtime.publishing.slices import CommittedOutput, cut
from runtime.publishing.tally import Show, Tally
from runtime.publishing.tasks import all_or_first_error

_IN_DOUBT = "It was about to be sent again when the process ended: whether it was is not known."


@dataclass(frozen=True, slots=True)
class Redriven:
    """What came of a redrive: how many outputs were sent, and all that the target still refuses."""

    publication: Publication
    outputs: int
    refused: Sequence[Refused]


async def letters(table: Table, record: BatchRecord, target: Target, types: Sequence[str] = ()) -> Redriven:
    """Return what a target has refused of a batch, and send nothing. Raises `UsageError` when it was not published."""
    publications = Publications(table, system_clock)
    publication = await _find(publications, record, target, types)
    return Redriven(publication, 0, await publications.refused(publication))


async def redrive(
    table: Table,
    record: BatchRecord,
    out: str,
    target: Target,
    options: PublishOptions | None = None,
    *,
    clock: Clock = system_clock,
    show: Show | None = None,
) -> Redriven:
    """Send again what a target has refused of a batch, in order for each business object.

    Reads the outcomes once. Costs a request for each output, and one more where it is sent at most once. Raises
    `UsageError` when the batch was not published to the target, and `TargetError` as `publish` does.
    """
    options, publications = options or PublishOptions(), Publications(table, clock)
    publication = await _find(publications, record, target, options.types)
    found = {each.refused.message_id: each for each in await publications.letters(publication)}
    sent = 0
    if found:
        outputs = BatchOutputs.of(record, out, options.types)
        with cut(outputs.with_ids(list(found)), 1) as only:
            await target.prepare(only.types)
            tally = Tally(len(found), show)
            again = _Again(publications, publication, target, options, found, tally)
            await again.run(only.outputs(0))
            sent = again.sent
    return Redriven(publication, sent, await publications.refused(publication))


async def _find(
    publications: Publications, record: BatchRecord, target: Target, types: Sequence[str]
) -> Publication:
    found = await publications.find(key_of(record, target, types))
    if found is None:
        message = (
            f"Batch {record.batch_id} was not published to {target.name}, or with another --map or other --types: name "
            f"these as they were then."
        )
        raise UsageError(message)
    return found


@dataclass
class _Again:
    """Sends letters again, those of a business object one after another."""

    publications: Publications
    publication: Publication
    target: Target
    options: PublishOptions
    letters: dict[str, Letter]
    tally: Tally
    sent: int = 0

    async def run(self, outputs: Iterable[CommittedOutput]) -> None:
        """Send outputs, several business objects at a time."""
        by_object = (list(some) for _, some in groupby(outputs, attrgetter("business_id")))
        most = self.options.concurrency
        workers = min(most, self.target.publishers or most)
        await all_or_first_error([self._work(by_object) for _ in range(workers)])

    async def _work(self, by_object: Iterator[list[CommittedOutput]]) -> None:
        publisher = self.target.publisher()
        try:
            for outputs in by_object:  # the workers share the iterator
                for output in outputs:
                    await self._send(publisher, output)
        finally:
            await publisher.close()

    async def _send(self, publisher: Publisher, output: CommittedOutput) -> None:
        letter: Letter | None = self.letters[output.message_id]
        if letter is not None and self.target.promise.is_noted_before:
            letter = await self.publications.keep(self.publication, letter, _IN_DOUBT)
        if letter is None:
            return  # somebody else sends it
        why = await self._until_answered(publisher, output)
        if why is None:
            await self.publications.drop(self.publication, letter)
            self.sent += 1
            self.tally.put(0, self.sent)
            self.tally.show()
        else:
            await self.publications.keep(self.publication, letter, why)

    async def _until_answered(self, publisher: Publisher, output: CommittedOutput) -> str | None:
        for attempt in range(1, self.options.attempts):
            try:
                return await self._attempt(publisher, output)
            except TargetUnavailableError:
                await publisher.roll_back()
                await asyncio.sleep(pause_seconds(attempt, 0.1, 10.0))
        return await self._attempt(publisher, output)

    async def _attempt(self, publisher: Publisher, output: CommittedOutput) -> str | None:
        """Send an output as a slice of its own; return why it is refused, None when it was sent."""
        name = sha256(output.message_id.encode()).hexdigest()[:32]
        if not await publisher.open(SliceName(f"{self.publication.key}-again-{name}", 0)):
            return None
        refused = await publisher.send([output])
        if refused:
            await publisher.roll_back()
            return refused[0].why
        await publisher.commit()
        return None
