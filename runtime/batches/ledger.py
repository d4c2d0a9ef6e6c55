"""The ledger: one row for each batch, in the same table as the streams.

It tells which rounds of a batch are committed and whether it is published. A published batch is immutable; a
batch that died stands as `started` until it is run again with its id, or abandoned. What a batch reads of the ledger
depends on the batches that are open, not on those that ended (see `runtime.batches.numbering`).
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import NamedTuple

from eventstore import Operation, RowChangedError, RowExistsError, RowNotFoundError, Table
from runtime.batches.numbering import PARTITION, Counter, Numbering, began, ended, pruned
from runtime.batches.open_batches import OpenBatches
from runtime.batches.record import (
    STATE_BASED,
    BatchRecord,
    BatchStatus,
    check_id,
    read_record,
    record_properties,
)
from runtime.batches.settings import Claim, TableSettings
from runtime.clock import Clock, to_datetime
from runtime.errors import BatchRefusedError
from runtime.retries import RetryPolicy

_PRUNED_AT_ONCE = 50


class AlgorithmOfTable(NamedTuple):
    """The algorithm that a table was processed with, and a batch that was."""

    name: str
    batch_id: str


class Ledger:
    """The batches of one table."""

    def __init__(self, table: Table, clock: Clock, retries: RetryPolicy | None = None) -> None:
        self._table = table
        self._clock = clock
        self._retries = (retries or RetryPolicy()).beside(table)
        self._numbering = Numbering(table)

    async def begin(
        self,
        batch_id: str,
        input_: str,
        out: str,
        algorithm: str = STATE_BASED,
        claim: Claim | None = None,
    ) -> BatchRecord:
        """Begin a batch, or return the record of one that was begun with the same input. Costs two or three requests.

        What it claims of the table is stored with it. A batch without a committed round takes another folder. Raises
        `BatchRefusedError` for an id that was abandoned, used with other input, or has outcomes in another folder, and
        for a table of another algorithm; `UsageError` for a claim that the table does not meet;
        `RetriesExhaustedError` when too many others begin at the same moment.
        """
        check_id(batch_id)
        now, tries = self._now(), self._retries.start()
        asked = BatchRecord(
            batch_id, input_, out, uuid.uuid4().hex, BatchStatus.STARTED, 0, now, now, {}, 0, algorithm
        )
        while True:
            try:
                return await self._begin(asked, claim)
            except RowExistsError as error:
                found = await self.find(batch_id)
                if found is not None:
                    return await self._resumed(found, asked)
                await tries.pause(error)
            except RowChangedError as error:
                await tries.pause(error)

    async def _begin(self, asked: BatchRecord, claim: Claim | None) -> BatchRecord:
        """Give a batch its number, its row and its marker, and the table its settings, in one transaction."""
        counter = await self._numbering.read()
        if counter.algorithm is not None:
            _check_algorithm(AlgorithmOfTable(counter.algorithm, counter.first_batch), asked.algorithm)
        record = replace(asked, number=counter.next)
        counted = replace(
            counter,
            next=counter.next + 1,
            algorithm=counter.algorithm or asked.algorithm,
            first_batch=counter.first_batch or asked.batch_id,
        )
        operations = [
            Operation.insert(record.batch_id, record_properties(record)),
            counted.operation(),
            began(record),
        ]
        settings = counter.settings if claim is None else await self._claimed(counter, claim)
        if settings != counter.settings:
            operations.append(settings.operation())
        etag, *_ = await self._table.transact(PARTITION, operations)
        return replace(record, etag=etag)

    async def _claimed(self, counter: Counter, claim: Claim) -> TableSettings:
        return await claim.made_on(self._table, counter.settings, has_batches=counter.algorithm is not None)

    async def get(self, batch_id: str) -> BatchRecord:
        """Return the record of a batch. Raises `BatchRefusedError` when there is none."""
        found = await self._at(batch_id)
        if found is None:
            message = f"There is no batch {batch_id}: `consistent batches` lists those of a table."
            raise BatchRefusedError(message)
        return found

    async def find(self, batch_id: str) -> BatchRecord | None:
        """Return the record of a batch, None when there is none: it was never begun, or was pruned.

        Raises `BatchRefusedError` for an id that is not usable.
        """
        check_id(batch_id)
        return await self._at(batch_id)

    async def check_folder(self, batch_id: str, out: str) -> None:
        """Raise `BatchRefusedError` when a batch cannot be run with its outcomes in a folder, whatever its input."""
        found = await self.find(batch_id)
        if found is not None:
            _check_folder(found, out)

    async def decide(self, record: BatchRecord, attempt: str) -> BatchRecord:
        """Note which attempt at the next round counts, unless another driver of the batch has noted one.

        Return the batch with the attempt that counts, or with more rounds when that one is committed already. Costs a
        request, and another when somebody else was faster.
        """
        changed = replace(record, attempt=attempt, updated_at=self._now())
        operation = Operation.replace(record.batch_id, record_properties(changed), record.etag)
        try:
            (etag,) = await self._table.transact(PARTITION, [operation])
        except (RowChangedError, RowNotFoundError):
            found = await self.get(record.batch_id)
            if found.status is not BatchStatus.ABANDONED and found.rounds > record.rounds:
                return found
            if found.is_finished or not found.attempt:
                raise _taken(found) from None
            return found
        await self._table.barrier()
        return replace(changed, etag=etag)

    async def commit_round(
        self, record: BatchRecord, number: int, counts: Mapping[str, int], routable: int
    ) -> BatchRecord:
        """Note that the outcomes of a round are in place, unless another driver of the batch has done so."""
        total = {key: record.counts.get(key, 0) + counts.get(key, 0) for key in {**record.counts, **counts}}
        return await self._update(
            record, replace(record, rounds=number + 1, counts=total, last_routable=routable, attempt="")
        )

    async def publish(self, record: BatchRecord) -> BatchRecord:
        """Note that all rounds are committed: from now on the batch is immutable."""
        return await self._update(record, replace(record, status=BatchStatus.PUBLISHED))

    async def abandon(self, batch_id: str) -> BatchRecord:
        """Give a batch up: what it stored stays, what it did not publish it never will."""
        record = await self.get(batch_id)
        if not record.is_finished:
            record = await self._update(record, replace(record, status=BatchStatus.ABANDONED))
        if record.status is BatchStatus.PUBLISHED:
            message = f"Batch {batch_id} is published and cannot be abandoned."
            raise BatchRefusedError(message)
        return record

    async def batches(self, limit: int) -> list[BatchRecord]:
        """Return the newest batches: the open ones, then the others, the one that ended last first.

        Costs a request for each, and two more.
        """
        found = [await self._at(batch_id) for batch_id in await self._numbering.newest(limit)]
        return [record for record in found if record is not None]

    async def algorithm(self) -> AlgorithmOfTable | None:
        """Return the algorithm of the table's batches, None when there were none. Costs a request."""
        counter = await self._numbering.read()
        return None if counter.algorithm is None else AlgorithmOfTable(counter.algorithm, counter.first_batch)

    async def check_table(self, algorithm: str, claim: Claim | None = None) -> None:
        """Raise `BatchRefusedError` when a batch used another algorithm, or the same with its store elsewhere.

        This one would not recognise what was processed. Raises `UsageError` when the table does not meet a claim. Costs
        as much as `algorithm`, and to key the draws of a new table one request more.
        """
        counter = await self._numbering.read()
        if counter.algorithm is not None:
            _check_algorithm(AlgorithmOfTable(counter.algorithm, counter.first_batch), algorithm)
        if claim is not None:
            await self._claimed(counter, claim)

    async def open_batches(self) -> OpenBatches:
        """Return which batches may still publish. Costs a request for each 1,000 that are open."""
        found, _ = await self.snapshot()
        return found

    async def snapshot(self) -> tuple[OpenBatches, TableSettings]:
        """Return what `open_batches` does, and the settings of the table, which cost nothing more."""
        return await self._numbering.snapshot()

    async def prune(self, before: int) -> int:
        """Delete the rows of batches that ended before a time, in microseconds. Return how many.

        An open batch stays, however old it is. Costs a request for each 1,000 batches and one more, and a transaction
        for each 50. Raises `RetriesExhaustedError` when others prune all the time.
        """
        count, tries = 0, self._retries.start()
        while markers := await self._numbering.past(before):
            try:
                for start in range(0, len(markers), _PRUNED_AT_ONCE):
                    some = markers[start : start + _PRUNED_AT_ONCE]
                    await self._table.transact(PARTITION, pruned(some))
                    count += len(some)
                    tries.progress()
            except RowNotFoundError as error:
                await tries.pause(error)
        return count

    async def _at(self, batch_id: str) -> BatchRecord | None:
        row = await self._table.get(PARTITION, batch_id)
        return None if row is None else read_record(row)

    async def _resumed(self, found: BatchRecord, asked: BatchRecord) -> BatchRecord:
        _check_folder(found, asked.out)
        if found.input != asked.input:
            message = (
                f"Batch {found.batch_id} was begun with other input: {found.input}. Now it is: {asked.input}. "
                f"Give this input a batch id of its own."
            )
            raise BatchRefusedError(message)
        if found.out == asked.out:
            return found
        return await self._update(found, replace(found, out=asked.out, attempt=""))

    async def _update(self, record: BatchRecord, wanted: BatchRecord) -> BatchRecord:
        changed = replace(wanted, updated_at=self._now())
        operations = [Operation.replace(record.batch_id, record_properties(changed), record.etag)]
        if changed.is_finished:
            operations += ended(changed)
        try:
            etag, *_ = await self._table.transact(PARTITION, operations)
        except (RowChangedError, RowNotFoundError):
            return _at_least(await self.get(record.batch_id), changed)
        await self._table.barrier()
        return replace(changed, etag=etag)

    def _now(self) -> datetime:
        return to_datetime(self._clock())


def _check_algorithm(found: AlgorithmOfTable, algorithm: str) -> None:
    if found.name != algorithm:
        message = (
            f"The table was processed with the algorithm {found.name} (batch {found.batch_id}), and "
            f"cannot be with {algorithm}, which would not recognise what was processed: use the same, "
            f"or another table."
        )
        raise BatchRefusedError(message)


def _check_folder(found: BatchRecord, out: str) -> None:
    if found.status is BatchStatus.ABANDONED:
        message = f"Batch {found.batch_id} was abandoned: run its messages under a new id."
        raise BatchRefusedError(message)
    if found.rounds and found.out != out:
        message = (
            f"Batch {found.batch_id} has outcomes in {found.out}: run it again with --batch-id {found.batch_id} "
            f"--out {found.out}."
        )
        raise BatchRefusedError(message)


def _at_least(found: BatchRecord, wanted: BatchRecord) -> BatchRecord:
    """Return what another driver of the same batch has noted, when it has come as far."""
    was_abandoned = found.status is BatchStatus.ABANDONED and wanted.status is not BatchStatus.ABANDONED
    if was_abandoned or found.rounds < wanted.rounds or (wanted.is_finished and not found.is_finished):
        raise _taken(found)
    return found


def _taken(found: BatchRecord) -> BatchRefusedError:
    """Return the error that a batch was changed by somebody else, so that this driver cannot go on."""
    if found.status is BatchStatus.ABANDONED:
        return BatchRefusedError(f"Batch {found.batch_id} was abandoned while it ran.")
    return BatchRefusedError(
        f"Batch {found.batch_id} is being run by someone else: run it again with its id when that ended."
    )
