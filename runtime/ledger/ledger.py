"""The ledger: one row for each batch, numbered, in the same table as the streams.

It tells which rounds of a batch are committed and whether it is published. A published batch is immutable; a batch that
died stays `started` until it is run again with its id, or abandoned. What a batch reads of the ledger depends on the
batches that are open, not on those that ended. For this there are, in the same partition:

- the counter, `!next`: the number that the next batch gets, and the algorithm of the table;
- the settings of the table, `!of-table` (see `runtime.ledger.settings`);
- a marker for each open batch, `!open-{id}`, from its begin to its end;
- a marker for each batch that ended, `!past-{time}-{id}`, the last one first, until it is pruned.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import AsyncIterator, Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from functools import partial
from hashlib import sha256

from eventstore import Int64, Operation, Row, Table, Value, pages
from eventstore.errors import RowChangedError, RowExistsError, RowNotFoundError, StoreUnavailableError
from runtime.clock import Clock, to_datetime, to_microseconds
from runtime.errors import BatchRefusedError, RetriesExhaustedError
from runtime.ledger.batch import BatchKey, OpenBatches
from runtime.ledger.settings import LEDGER, OF_TABLE, TableDemands, TableSettings, read_settings
from runtime.retries import RetryPolicy
from runtime.versions.properties import INT32, number, reading_row, text, time

STATE_BASED = "state-based"

EPOCH = "epoch "  # begins what describes the input of a micro-batch

HIDDEN_EPOCHS = "_epochs"
"""The folder of OUT in which a micro-batch is made, and in which it waits until readers are to see it."""

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_COUNT = "Count_"


class BatchStatus(StrEnum):
    """How far a batch has come."""

    STARTED = "started"
    PUBLISHED = "published"
    ABANDONED = "abandoned"


@dataclass(frozen=True, slots=True)
class BatchRecord:
    """A batch as the ledger has it."""

    batch_id: str
    input: str  # describes log, app and options: the same id with another input is refused
    out: str
    token: str  # drawn when the batch begins; marks its folders
    status: BatchStatus
    rounds: int  # those whose outcomes are committed
    started_at: datetime
    updated_at: datetime
    counts: Mapping[str, int]
    last_routable: int = 0  # the outputs of the last round that a handler takes
    algorithm: str = STATE_BASED  # with the place of its de-duplication store or token store
    etag: str = ""
    number: int = 0  # counts the batches of the table, from 1 on
    attempt: str = ""  # the attempt at the next round that counts, once that is decided

    @property
    def key(self) -> BatchKey:
        """What versions and entries of the batch record."""
        return BatchKey(self.batch_id, self.number)

    @property
    def is_epoch(self) -> bool:
        """Whether it is a micro-batch of a stream."""
        return self.input.startswith(EPOCH)

    @property
    def shown_in(self) -> str:
        """Where readers find its outcomes: those of a micro-batch are moved there, out of the folder that has them."""
        return self.out.removesuffix(f"/{HIDDEN_EPOCHS}") if self.is_epoch else self.out

    @property
    def is_finished(self) -> bool:
        """Whether nothing more will be published under this id."""
        return self.status is not BatchStatus.STARTED


def check_id(batch_id: str) -> None:
    """Raise `BatchRefusedError` for an id that is not usable."""
    if not _ID.fullmatch(batch_id):
        raise BatchRefusedError(
            f"The batch id {batch_id!r} is not usable: up to 64 letters, digits, '.', '_' and '-'."
        )


def record_properties(record: BatchRecord) -> dict[str, Value]:
    """Return the properties of a batch's row."""
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
        "Number": Int64(record.number),
        **({"Attempt": record.attempt} if record.attempt else {}),
        **{f"{_COUNT}{name}": Int64(count) for name, count in record.counts.items()},
    }


def read_record(row: Row) -> BatchRecord:
    """Return the batch that a row holds. Raises `StoredDataError`."""
    with reading_row(f"The batch {row.row_key}", row):
        values = row.properties
        return BatchRecord(
            batch_id=row.row_key,
            input=text(values, "Input"),
            out=text(values, "Out"),
            token=text(values, "Token"),
            status=BatchStatus(text(values, "Status")),
            rounds=number(values, "Rounds", most=INT32),
            started_at=time(values, "StartedAt"),
            updated_at=time(values, "UpdatedAt"),
            counts={
                name.removeprefix(_COUNT): number(values, name) for name in values if name.startswith(_COUNT)
            },
            last_routable=number(values, "LastRoutable"),
            algorithm=text(values, "Algorithm"),
            etag=row.etag,
            number=number(values, "Number"),
            attempt=text(values, "Attempt") if "Attempt" in values else "",
        )


PARTITION = LEDGER
COUNTER, OPEN, PAST = "!next", "!open-", "!past-"
LAST = "~"

_DIGITS = 16
_PRUNED_AT_ONCE = 50


@dataclass(frozen=True, slots=True)
class Counter:
    """The counter of a ledger."""

    next: int = 1
    algorithm: str | None = None  # of the batches of the table
    first_batch: str = ""
    etag: str | None = None  # None before the first batch
    settings: TableSettings = field(default_factory=TableSettings)  # read with the counter, stored elsewhere

    def operation(self) -> Operation:
        """Return the change that stores the counter, unless it was changed since it was read."""
        properties: dict[str, Value] = {
            "Next": Int64(self.next),
            "FirstBatch": self.first_batch,
            "Algorithm": self.algorithm or "",
        }
        if self.etag is None:
            return Operation.insert(COUNTER, properties)
        return Operation.replace(COUNTER, properties, self.etag)


def read_counter(row: Row) -> Counter:
    """Return the counter that a row holds. Raises `StoredDataError`."""
    values = row.properties
    with reading_row("The counter of batches", row):
        next_, algorithm = number(values, "Next"), text(values, "Algorithm")
        return Counter(next_, algorithm, text(values, "FirstBatch"), row.etag)


def began(record: BatchRecord) -> Operation:
    """Return the change that writes the marker of a batch that begins."""
    return Operation.insert_or_replace(OPEN + record.batch_id, {"Number": Int64(record.number)})


def past_marker(record: BatchRecord) -> Operation:
    """Return the change that writes the marker of a batch that has ended."""
    time = _inverted(to_microseconds(record.updated_at))
    return Operation.insert_or_replace(f"{PAST}{time}-{record.batch_id}", {})


def _inverted(time: int) -> str:
    """Return a time in microseconds as text that is smaller for a later one. All before 1970 are one."""
    return f"{10**_DIGITS - 1 - max(time, 0):0{_DIGITS}}"


def id_of(marker: str) -> str:
    """Return the id of the batch whose marker has this row key."""
    is_past = marker.startswith(PAST)
    return marker[len(PAST) + _DIGITS + 1 :] if is_past else marker.removeprefix(OPEN)


def _number(marker: Row) -> int:
    with reading_row("The marker of a batch", marker):
        return number(marker.properties, "Number")


class Ledger:
    """The batches of one table."""

    def __init__(self, table: Table, clock: Clock, retries: RetryPolicy | None = None) -> None:
        self._table = table
        self._clock = clock
        self._retries = (retries or RetryPolicy()).beside(table)

    async def begin(
        self,
        batch_id: str,
        input_: str,
        out: str,
        algorithm: str = STATE_BASED,
        demands: TableDemands | None = None,
    ) -> BatchRecord:
        """Begin a batch, or return the record of one that was begun with the same input. Costs two or three requests.

        The settings that it claims are stored with it. A batch without a committed round may move to another folder.
        Raises `BatchRefusedError` for an id that was abandoned or has other input or another folder, and for a table of
        another algorithm; `UsageError` for a claim that the table does not meet; `RetriesExhaustedError` after too many
        conflicts.
        """
        check_id(batch_id)
        now, tries = self._now(), self._retries.start()
        asked = BatchRecord(
            batch_id, input_, out, uuid.uuid4().hex, BatchStatus.STARTED, 0, now, now, {}, 0, algorithm
        )
        while True:
            try:
                return await self._begin(asked, demands)
            except RowExistsError as error:
                existing = await self.find(batch_id)
                if existing is not None:
                    return await self._resumed(existing, asked)
                await tries.pause(error)
            except RowChangedError as error:
                await tries.pause(error)

    async def _begin(self, asked: BatchRecord, demands: TableDemands | None) -> BatchRecord:
        """Give a batch its number, its row and its marker, and the table its settings, in one transaction."""
        counter = await self._counter(asked.algorithm)
        record = replace(asked, number=counter.next)
        first = (counter.algorithm or asked.algorithm, counter.first_batch or asked.batch_id)
        counted = Counter(counter.next + 1, *first, counter.etag)
        insert = Operation.insert(record.batch_id, record_properties(record))
        operations = [insert, counted.operation(), began(record)]
        if demands is not None:
            has_batches = counter.algorithm is not None
            settings = await demands.settings_after(self._table, counter.settings, has_batches=has_batches)
            if settings != counter.settings:
                operations.append(settings.operation())
        etag, *_ = await self._table.transact(PARTITION, operations)
        return replace(record, etag=etag)

    async def _resumed(self, existing: BatchRecord, asked: BatchRecord) -> BatchRecord:
        _check_folder(existing, asked.out)
        if existing.input != asked.input:
            raise BatchRefusedError(
                f"Batch {existing.batch_id} was begun with other input: {existing.input}. Now it is: {asked.input}. "
                f"Give this input a batch id of its own."
            )
        if existing.out == asked.out:
            return existing
        return await self._update(existing, replace(existing, out=asked.out, attempt=""))

    async def _counter(self, algorithm: str | None = None) -> Counter:
        """Return the counter. One request. Raises `BatchRefusedError` for a table of another algorithm."""
        read = partial(self._table.query, PARTITION, COUNTER, OF_TABLE)
        rows = {row.row_key: row async for page in pages(read) for row in page.rows}
        counter = read_counter(rows[COUNTER]) if COUNTER in rows else Counter()
        if algorithm is not None and counter.algorithm not in (None, algorithm):
            raise BatchRefusedError(
                f"The table was processed with the algorithm {counter.algorithm} (batch {counter.first_batch}), and "
                f"cannot be with {algorithm}, which would not recognise what was processed: use the same, "
                f"or another table."
            )
        return replace(counter, settings=read_settings(rows[OF_TABLE])) if OF_TABLE in rows else counter

    async def get(self, batch_id: str) -> BatchRecord:
        """Return the record of a batch. Raises `BatchRefusedError` when there is none."""
        record = await self._at(batch_id)
        if record is None:
            raise BatchRefusedError(
                f"There is no batch {batch_id}: `consistent batches` lists those of a table."
            )
        return record

    async def find(self, batch_id: str) -> BatchRecord | None:
        """Return the record of a batch, None if the ledger has none. Raises `BatchRefusedError` for an invalid id."""
        check_id(batch_id)
        return await self._at(batch_id)

    async def _at(self, batch_id: str) -> BatchRecord | None:
        row = await self._table.get(PARTITION, batch_id)
        return None if row is None else read_record(row)

    async def check_folder(self, batch_id: str, out: str) -> None:
        """Raise `BatchRefusedError` when a batch cannot be run with its outcomes in a folder, whatever its input."""
        record = await self.find(batch_id)
        if record is not None:
            _check_folder(record, out)

    async def choose_attempt(self, record: BatchRecord, attempt: str) -> BatchRecord:
        """Note which attempt at the next round counts, unless another driver of the batch has noted one.

        Return the batch with the attempt that counts, or with more rounds if that one is committed. One request, two
        after a conflict.
        """
        changed = replace(record, attempt=attempt, updated_at=self._now())
        operation = Operation.replace(record.batch_id, record_properties(changed), record.etag)
        try:
            (etag,) = await self._table.transact(PARTITION, [operation])
        except (RowChangedError, RowNotFoundError):
            current = await self.get(record.batch_id)
            if current.status is not BatchStatus.ABANDONED and current.rounds > record.rounds:
                return current
            if current.is_finished or not current.attempt:
                raise _taken(current) from None
            return current
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

    async def begin_again(self, record: BatchRecord) -> BatchRecord:
        """Discard the committed rounds of a batch."""
        return await self._update(record, replace(record, rounds=0, counts={}, last_routable=0, attempt=""))

    async def publish(self, record: BatchRecord) -> BatchRecord:
        """Note that all rounds are committed: from now on the batch is immutable."""
        return await self._update(record, replace(record, status=BatchStatus.PUBLISHED))

    async def abandon(self, batch_id: str) -> BatchRecord:
        """Abandon a batch: its versions stay, and it publishes nothing more."""
        record = await self.get(batch_id)
        if not record.is_finished:
            record = await self._update(record, replace(record, status=BatchStatus.ABANDONED))
        if record.status is BatchStatus.PUBLISHED:
            raise BatchRefusedError(f"Batch {batch_id} is published and cannot be abandoned.")
        return record

    async def _update(self, record: BatchRecord, wanted: BatchRecord) -> BatchRecord:
        """Store a batch, or return its record if another driver has come as far."""
        changed = replace(wanted, updated_at=self._now())
        operations = [Operation.replace(record.batch_id, record_properties(changed), record.etag)]
        if changed.is_finished:
            operations += [Operation.delete(OPEN + changed.batch_id), past_marker(changed)]
        try:
            etag, *_ = await self._table.transact(PARTITION, operations)
        except (RowChangedError, RowNotFoundError):
            current = await self.get(record.batch_id)
            has_come_as_far = current.rounds >= changed.rounds and current.is_finished >= changed.is_finished
            if not has_come_as_far or (
                current.status is BatchStatus.ABANDONED and changed.status is not BatchStatus.ABANDONED
            ):
                raise _taken(current) from None
            return current
        await self._table.barrier()
        return replace(changed, etag=etag)

    async def batches(self, limit: int) -> list[BatchRecord]:
        """Return the newest batches: the open ones, then the others by their end.

        Costs a request for each, one for each 1,000 open ones, and one for each 1,000 others that are asked for.
        """
        read = partial(self._table.query, PARTITION, OPEN, OPEN + LAST)
        markers = [row async for page in pages(read) for row in page.rows]
        markers.sort(key=_number, reverse=True)
        async for page in pages(partial(self._table.query, PARTITION, PAST, PAST + LAST)):
            markers += page.rows
            if len(markers) >= limit:
                break
        records = [await self._at(id_of(marker.row_key)) for marker in markers[:limit]]
        return [record for record in records if record is not None]

    async def algorithm(self) -> tuple[str, str] | None:
        """Return the algorithm of the table's batches and the id of one; None without batches. Costs a request."""
        counter = await self._counter()
        return None if counter.algorithm is None else (counter.algorithm, counter.first_batch)

    async def check_table(self, algorithm: str, demands: TableDemands | None = None) -> None:
        """Raise what `begin` raises for a table of another algorithm, or one that does not meet a claim.

        Costs as much as `algorithm`, and one request more to key the draws of a new table.
        """
        counter = await self._counter(algorithm)
        if demands is not None:
            has_batches = counter.algorithm is not None
            await demands.settings_after(self._table, counter.settings, has_batches=has_batches)

    async def open_batches(self) -> OpenBatches:
        """Return which batches may still publish. Costs a request for each 1,000 that are open."""
        open_batches, _ = await self.snapshot()
        return open_batches

    async def snapshot(self) -> tuple[OpenBatches, TableSettings]:
        """Return which batches are open, and the settings of the table. One request for each 1,000 open batches.

        The counter is read first, or at the same moment: a batch that it counts and that has no marker has ended.
        """
        next_, numbers, settings = 1, set[int](), TableSettings()
        async for page in pages(partial(self._table.query, PARTITION, COUNTER, OPEN + LAST)):
            for row in page.rows:
                if row.row_key == COUNTER:
                    next_ = read_counter(row).next
                elif row.row_key == OF_TABLE:
                    settings = read_settings(row)
                else:
                    numbers.add(_number(row))
        return OpenBatches(next_, frozenset(numbers)), settings

    async def prune(self, before: int, *, dry_run: bool = False) -> int:
        """Delete the rows of batches that ended before a time, in microseconds, unless `dry_run`. Return how many.

        Costs a request for each 1,000 batches and one more, and a transaction for each 50. Raises
        `RetriesExhaustedError` after too many conflicts.
        """
        count, tries = 0, self._retries.start()
        first = f"{PAST}{_inverted(before - 1)}"
        if dry_run:
            marker_pages = pages(partial(self._table.query, PARTITION, first, PAST + LAST))
            return sum([len(page.rows) async for page in marker_pages])
        while markers := (await self._table.query(PARTITION, first, PAST + LAST)).rows:
            try:
                for start in range(0, len(markers), _PRUNED_AT_ONCE):
                    some = [row.row_key for row in markers[start : start + _PRUNED_AT_ONCE]]
                    rows = [key for marker in some for key in (marker, id_of(marker))]
                    await self._table.transact(PARTITION, list(map(Operation.delete, rows)))
                    count += len(some)
                    tries.progress()
            except RowNotFoundError as error:
                await tries.pause(error)
        return count

    def _now(self) -> datetime:
        return to_datetime(self._clock())


async def records(table: Table) -> AsyncIterator[BatchRecord]:
    """Yield all batches of a table in the order of their ids. Costs a request for each 1,000."""
    async for page in pages(partial(table.query, PARTITION, "0", LAST)):
        for row in page.rows:
            yield read_record(row)


def _check_folder(record: BatchRecord, out: str) -> None:
    if record.status is BatchStatus.ABANDONED:
        raise BatchRefusedError(f"Batch {record.batch_id} was abandoned: run its messages under a new id.")
    if record.rounds and record.out != out:
        raise BatchRefusedError(
            f"Batch {record.batch_id} has outcomes in {record.out}: run it again with --batch-id {record.batch_id} "
            f"--out {record.out}."
        )


def _taken(record: BatchRecord) -> BatchRefusedError:
    """Return the error that another driver has changed the batch."""
    if record.status is BatchStatus.ABANDONED:
        return BatchRefusedError(f"Batch {record.batch_id} was abandoned while it ran.")
    return BatchRefusedError(
        f"Batch {record.batch_id} is being run by someone else: run it again with its id when that ended."
    )


# Consumer batches: a consumer of single messages acknowledges in bulk that their outputs are published.
#
# A consumer begins a batch of its own in the ledger; versions of its messages record the number. After `length` it
# begins the next. When all messages of the former batch have published their outputs, that one becomes published: one
# transaction for thousands of messages. Truncation keeps its versions until then. A consumer that dies leaves its batch
# open: once the queue has redelivered its messages, the batch can be abandoned (`consistent batches --abandon`).

INPUT = "single messages of a consumer"  # the recorded input of a consumer batch


@dataclass(slots=True, eq=False)
class ConsumerBatch:
    """One batch of a consumer. `running` messages are under way; those that `failed` may have unpublished outputs."""

    record: BatchRecord
    began_at: int
    running: int = 0
    failed: set[Hashable] = field(default_factory=set)

    @property
    def number(self) -> int:
        """The number that versions record."""
        return self.record.number


@dataclass(eq=False)
class ConsumerBatches:
    """The batches of one consumer, each of which lasts at least `length` microseconds. `new_id` draws unique ids."""

    ledger: Ledger
    clock: Clock
    new_id: Callable[[], str]
    length: int
    _current: ConsumerBatch | None = None
    _former: list[ConsumerBatch] = field(default_factory=list)

    async def enter(self) -> ConsumerBatch:
        """Return the batch for a new message. The first message of a batch begins it: two or three requests."""
        batch = self._current
        if batch is None or self.clock() - batch.began_at >= self.length:
            record = await self.ledger.begin(f"consumer-{self.new_id()}", INPUT, "-")
            batch = ConsumerBatch(record, self.clock())
            self._retire()
            self._current = batch
        batch.running += 1
        return batch

    async def leave(self, batch: ConsumerBatch, message: Hashable | None) -> None:
        """Note that a message has published its outputs, or is None and made no version; then end former batches.

        Costs two requests for each batch that can end.
        """
        batch.running -= 1
        for each in (*self._former, batch):
            each.failed.discard(message)
        await self._end_former()

    def fail(self, batch: ConsumerBatch, message: Hashable) -> None:
        """Note that a message may have unpublished outputs: its batch stays open until it was handled again."""
        batch.running -= 1
        batch.failed.add(message)

    async def flush(self) -> int:
        """End all batches that can end, the present one too, and return how many stay open."""
        self._retire()
        await self._end_former()
        return len(self._former)

    def _retire(self) -> None:
        """Close the current batch to new messages."""
        if self._current is not None:
            self._former.append(self._current)
            self._current = None

    async def _end_former(self) -> None:
        for batch in [each for each in self._former if not each.running and not each.failed]:
            self._former.remove(batch)
            try:
                await self.ledger.publish(batch.record)
            except (StoreUnavailableError, RetriesExhaustedError):
                self._former.append(batch)  # the outputs are published all the same; it is tried again later
            except BatchRefusedError:
                continue  # the operator has abandoned it


MARK = "_batch"
"""Begins the name of an empty file that says that a round is in place: which files it has, and of what sizes."""


def mark_prefix(token: str) -> str:
    """Return how the marks of a batch begin, whose token the ledger has."""
    return f"{MARK}-{token}-"


def mark_of(token: str, sizes: Mapping[str, int]) -> str:
    """Return the name of the mark of a round with these files."""
    return mark_prefix(token) + sha256(repr(sorted(sizes.items())).encode()).hexdigest()[:32]
