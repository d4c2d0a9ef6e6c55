"""Sending again what a target refused: each output by itself, once its cause is mended.

An output that the target takes is a dead letter no more; one that it refuses again stays, with the new reason. Each is
noted as in doubt before it is sent, so of two redrives one sends it. A redrive that was killed is started again: in a
target with transactions each output has a marker of its own, and a receiver of HTTP knows the key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from itertools import groupby
from operator import attrgetter

from eventstore import Table
from runtime.batches.record import BatchRecord
from runtime.clock import Clock, system_clock
from runtime.errors import UsageError
from runtime.publishing.outputs import BatchOutputs
from runtime.publishing.publisher import Publisher, Record, Result, SliceName, Target
from runtime.publishing.records import Kept, Publication, Publications, key_of
from runtime.publishing.runner import PublishOptions
from runtime.publishing.slices import CommittedOutput, cut
from runtime.publishing.tally import Show, Tally
from runtime.publishing.tasks import all_or_first_error
from runtime.retries import until_available

_IN_DOUBT = "It was about to be sent again when the process ended: whether it was is not known."


@dataclass(frozen=True, slots=True)
class Redriven:
    """What came of a redrive: how many outputs were sent, and all that is recorded now."""

    publication: Publication
    outputs: int
    records: Sequence[Record]

    @property
    def refused(self) -> list[Record]:
        """The dead letters: what the target still refuses."""
        return [each for each in self.records if each.result.is_letter]


async def letters(table: Table, record: BatchRecord, target: Target, types: Sequence[str] = ()) -> Redriven:
    """Return what a target has refused of a batch, and send nothing. Raises `UsageError` when it was not published."""
    publications = Publications(table, system_clock)
    publication = await _find(publications, record, target, types)
    return Redriven(publication, 0, await publications.records(publication))


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
            await target.prepare(only.types)
            tally = Tally(len(found), show)
            again = _Again(publications, publication, target, options, found, tally)
            await again.run(only.outputs(0))
            sent = again.sent
    return Redriven(publication, sent, await publications.records(publication))


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
    letters: dict[str, Kept]
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
        letter = self.letters[output.message_id]
        in_doubt = letter.record._replace(result=Result.UNKNOWN, why=_IN_DOUBT)
        kept = await self.publications.change(self.publication, letter, in_doubt)
        if kept is None:
            return  # somebody else sends it
        attempt = partial(self._attempt, publisher, output)
        record = await until_available(self.options.attempts, attempt, roll_back=publisher.roll_back)
        if record is None:
            await self.publications.drop(self.publication, in_doubt)
        else:
            await self.publications.change(self.publication, kept, record)
        if record is None or not record.result.is_letter:
            self.sent += 1
            self.tally.put(0, self.sent)
            self.tally.show()

    async def _attempt(self, publisher: Publisher, output: CommittedOutput) -> Record | None:
        """Send an output as a slice of its own; return what is to be recorded of it."""
        name = sha256(output.message_id.encode()).hexdigest()[:32]
        slice_name = SliceName(f"{self.publication.key}-again-{name}", 0, is_redrive=True)
        if not await publisher.open(slice_name):
            return None
        records = await publisher.send([output])
        if records and records[0].result.is_letter:
            await publisher.roll_back()
        else:
            await publisher.commit()
        return records[0] if records else None
