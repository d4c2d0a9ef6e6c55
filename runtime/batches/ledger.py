"""The ledger: one row for each batch, in the same table as the streams.

It tells which rounds of a batch are committed and whether it is published. A published batch is immutable; a
batch that died stands as `started` until it is run again with its id, or abandoned.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from functools import partial

from eventstore import Int64, Operation, Row, RowChangedError, RowExistsError, Table, Value, pages
from runtime.clock import Clock, to_datetime
from runtime.errors import BatchRefusedError
from runtime.storage.properties import number, text, time

PARTITION = "_batches"
"""The partition of the ledger: no stream's key is like it, as theirs hold a hyphen after the handler."""

STATE_BASED = "state-based"

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_FIRST, _LAST = "!", "~"
_COUNT = "Count_"
_FORMERLY = re.compile(
    r"(^|, algorithm=)(outbox|deduplication-store|tokens), evidence in (\w+ of .+)$", re.DOTALL
)
"""How older versions described an algorithm with a second table, which the outbox took too, and did not use."""


class BatchStatus(StrEnum):
    """How far a batch has come."""

    STARTED = "started"
    PUBLISHED = "published"
    ABANDONED = "abandoned"


@dataclass(frozen=True, slots=True)
class BatchRecord:
    """A batch as the ledger has it.

    `input` describes log, app and options: the same id with another one is refused. `rounds` counts the rounds
    whose outcomes are committed, `last_routable` the outputs of the last one that a handler takes. `token` is
    drawn when the batch begins, and marks its folders. `algorithm` names the algorithm, and the place of its
    de-duplication store or token store.
    """

    batch_id: str
    input: str
    out: str
    token: str
    status: BatchStatus
    rounds: int
    started_at: datetime
    updated_at: datetime
    counts: Mapping[str, int]
    last_routable: int = 0
    algorithm: str = STATE_BASED
    etag: str = ""

    @property
    def is_finished(self) -> bool:
        """Whether nothing more will be published under this id."""
        return self.status is not BatchStatus.STARTED


def check_id(batch_id: str) -> None:
    """Raise `BatchRefusedError` for an id that is not usable."""
    if not _ID.fullmatch(batch_id):
        message = f"The batch id {batch_id!r} is not usable: up to 64 letters, digits, '.', '_' and '-'."
        raise BatchRefusedError(message)


class Ledger:
    """The batches of one table."""

    def __init__(self, table: Table, clock: Clock) -> None:
        self._table = table
        self._clock = clock

    async def begin(self, batch_id: str, input_: str, out: str, algorithm: str = STATE_BASED) -> BatchRecord:
        """Begin a batch, or return the record of one that was begun with the same input. Costs two requests.

        A batch without a committed round takes another folder. Raises `BatchRefusedError` for an id that was abandoned,
        used with other input, or has outcomes in another folder.
        """
        check_id(batch_id)
        now = self._now()
        record = BatchRecord(
            batch_id, input_, out, uuid.uuid4().hex, BatchStatus.STARTED, 0, now, now, {}, 0, algorithm
        )
        try:
            (etag,) = await self._table.transact(PARTITION, [Operation.insert(batch_id, _properties(record))])
        except RowExistsError:
            return await self._resumed(await self.get(batch_id), record)
        return replace(record, etag=etag)

    async def get(self, batch_id: str) -> BatchRecord:
        """Return the record of a batch. Raises `BatchRefusedError` when there is none."""
        row = await self._table.get(PARTITION, batch_id)
        if row is None:
            message = f"There is no batch {batch_id}: `consistent batches` lists those of a table."
            raise BatchRefusedError(message)
        return _record(row)

    async def is_finished(self, batch_id: str) -> bool:
        """Say whether a batch is published or abandoned; one that was never begun is not.

        Raises `BatchRefusedError` for an id that is not usable.
        """
        found = await self._find(batch_id)
        return found is not None and found.is_finished

    async def check_folder(self, batch_id: str, out: str) -> None:
        """Raise `BatchRefusedError` when a batch cannot be run with its outcomes in a folder, whatever its input."""
        found = await self._find(batch_id)
        if found is not None:
            _check_folder(found, out)

    async def commit_round(
        self, record: BatchRecord, number: int, counts: Mapping[str, int], routable: int
    ) -> BatchRecord:
        """Note that the outcomes of a round are in place, unless another driver of the batch has done so."""
        total = {key: record.counts.get(key, 0) + counts.get(key, 0) for key in {**record.counts, **counts}}
        return await self._update(
            record, replace(record, rounds=number + 1, counts=total, last_routable=routable)
        )

    async def publish(self, record: BatchRecord) -> BatchRecord:
        """Note that all rounds are committed: from now on the batch is immutable."""
        return await self._update(record, replace(record, status=BatchStatus.PUBLISHED))

    async def abandon(self, batch_id: str) -> BatchRecord:
        """Give a batch up: what it stored stays, what it did not publish it never will."""
        record = await self.get(batch_id)
        if record.status is not BatchStatus.PUBLISHED:
            record = await self._update(record, replace(record, status=BatchStatus.ABANDONED))
        if record.status is BatchStatus.PUBLISHED:
            message = f"Batch {batch_id} is published and cannot be abandoned."
            raise BatchRefusedError(message)
        return record

    async def batches(self) -> list[BatchRecord]:
        """Return all batches, the oldest first."""
        records: list[BatchRecord] = []
        async for page in pages(partial(self._table.query, PARTITION, _FIRST, _LAST)):
            records += map(_record, page.rows)
        return sorted(records, key=lambda record: (record.started_at, record.batch_id))

    async def check_algorithm(self, algorithm: str) -> None:
        """Raise `BatchRefusedError` when a batch used another algorithm, or the same with its store elsewhere.

        This one would not recognise what was processed. Costs one request for each 1,000 batches.
        """
        for record in await self.batches():
            if record.algorithm != algorithm:
                message = (
                    f"The table was processed with the algorithm {record.algorithm} (batch {record.batch_id}), and "
                    f"cannot be with {algorithm}, which would not recognise what was processed: use the same, "
                    f"or another table."
                )
                raise BatchRefusedError(message)

    async def finished(self) -> frozenset[str]:
        """Return the ids of batches that are published or abandoned: their outputs are out, or never will be."""
        return frozenset(record.batch_id for record in await self.batches() if record.is_finished)

    async def _find(self, batch_id: str) -> BatchRecord | None:
        check_id(batch_id)
        row = await self._table.get(PARTITION, batch_id)
        return None if row is None else _record(row)

    async def _resumed(self, found: BatchRecord, asked: BatchRecord) -> BatchRecord:
        _check_folder(found, asked.out)
        if found.input != asked.input:
            message = (
                f"Batch {found.batch_id} was begun with other input: {found.input}. Now it is: {asked.input}. "
                f"Give this input a batch id of its own."
            )
            raise BatchRefusedError(message)
        return found if found.out == asked.out else await self._update(found, replace(found, out=asked.out))

    async def _update(self, record: BatchRecord, wanted: BatchRecord) -> BatchRecord:
        changed = replace(wanted, updated_at=self._now())
        try:
            operation = Operation.replace(record.batch_id, _properties(changed), record.etag)
            (etag,) = await self._table.transact(PARTITION, [operation])
        except RowChangedError:
            return _at_least(await self.get(record.batch_id), changed)
        await self._table.barrier()
        return replace(changed, etag=etag)

    def _now(self) -> datetime:
        return to_datetime(self._clock())


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
    if found.status is BatchStatus.ABANDONED and wanted.status is not BatchStatus.ABANDONED:
        message = f"Batch {found.batch_id} was abandoned while it ran."
        raise BatchRefusedError(message)
    if found.rounds < wanted.rounds or (wanted.is_finished and not found.is_finished):
        message = (
            f"Batch {found.batch_id} is being run by someone else: run it again with its id when that ended."
        )
        raise BatchRefusedError(message)
    return found


def _properties(record: BatchRecord) -> dict[str, Value]:
    return {
        "Input": record.input,
        "Out": record.out,
        "Token": record.token,
        "Status": record.status.value,
        "Rounds": record.rounds,
        "LastRoutable": Int64(record.last_routable),
        "Algorithm": record.algorithm,
        "StartedAt": record.started_at,
        "UpdatedAt": record.updated_at,
        **{f"{_COUNT}{name}": Int64(count) for name, count in record.counts.items()},
    }


def _record(row: Row) -> BatchRecord:
    values = row.properties
    return BatchRecord(
        batch_id=row.row_key,
        input=_as_written_today(text(values, "Input")),
        out=text(values, "Out"),
        token=text(values, "Token"),
        status=BatchStatus(text(values, "Status")),
        rounds=number(values, "Rounds"),
        started_at=time(values, "StartedAt"),
        updated_at=time(values, "UpdatedAt"),
        counts={
            name.removeprefix(_COUNT): number(values, name) for name in values if name.startswith(_COUNT)
        },
        last_routable=number(values, "LastRoutable"),
        algorithm=_as_written_today(text(values, "Algorithm")) if "Algorithm" in values else STATE_BASED,
        etag=row.etag,
    )


def _as_written_today(described: str) -> str:
    """Return the description of an algorithm, or of an input that ends with one, as it is written today."""
    return _FORMERLY.sub(
        lambda found: f"{found[1]}{found[2]}" + ("" if found[2] == "outbox" else f" in {found[3]}"), described
    )
