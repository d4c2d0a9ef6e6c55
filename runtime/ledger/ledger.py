"""The ledger: one numbered row for each batch, in the same table as the streams.

A row records the committed rounds of its batch, and whether the batch is published. A published batch is immutable. A
batch whose driver died stays `started` until it is resumed or abandoned. The same partition contains:

- the counter, `!next`: the next batch number, and the algorithm of the table;
- the table's settings, `!of-table` (see `runtime.ledger.settings`);
- a marker for each open batch, `!open-{id}`;
- a marker for each finished batch, `!past-{time}-{id}`, newest first, until the batch is pruned.

The markers make the cost of a batch depend on the number of open batches, not on all that ever ran.
"""

import re
import uuid
from collections.abc import AsyncIterator, Callable, Hashable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from functools import partial
from hashlib import sha256
from typing import Any

from eventstore import Int64, Operation, Row, Table, Value, pages
from eventstore.errors import RowChangedError, RowExistsError, RowNotFoundError, StoreUnavailableError
from runtime.clock import Clock, to_datetime, to_microseconds
from runtime.errors import BatchRefusedError, RetriesExhaustedError
from runtime.file_systems import path_and_options
from runtime.ledger.batch import BatchKey, OpenBatches
from runtime.ledger.settings import LEDGER, OF_TABLE, TableDemands, TableSettings, read_settings
from runtime.retries import RetryPolicy
from runtime.versions.properties import INT32, number, reading_row, rows_between, text, time, written

STATE_BASED = "state-based"
EPOCH = "epoch "  # the prefix of the input of a micro-batch
REPROCESSING = "reprocessing of "  # the prefix of the input of a reprocessing, which publishes no outputs
HIDDEN_EPOCHS = "_epochs"  # the folder in OUT that holds a micro-batch until readers may see it

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_COUNT = "Count_"


class BatchStatus(StrEnum):
    """The progress of a batch, as the ledger records it."""

    STARTED = "started"
    PUBLISHED = "published"
    ABANDONED = "abandoned"


@dataclass(frozen=True, slots=True)
class BatchRecord:
    """The ledger's record of a batch."""

    batch_id: str
    input: str  # log, app and options; a batch id cannot be reused with another input
    out: str
    token: str  # random; marks the folders of the batch
    status: BatchStatus
    rounds: int  # the number of committed rounds
    started_at: datetime
    updated_at: datetime
    counts: Mapping[str, int]  # of deliveries by status, and of outputs
    last_routable: int = 0  # the number of outputs of the last round that have a handler
    algorithm: str = STATE_BASED  # with the location of its deduplication or token store
    etag: str = ""
    number: int = 0  # 1 for the table's first batch
    attempt: str = ""  # the chosen attempt at the next round

    @property
    def key(self) -> BatchKey:
        """The batch key that the batch's versions and outbox entries record."""
        return BatchKey(self.batch_id, self.number)

    @property
    def is_epoch(self) -> bool:
        """Whether this is a micro-batch of a streaming query."""
        return self.input.startswith(EPOCH)

    @property
    def is_reprocessing(self) -> bool:
        """Whether this batch reprocesses the history of another table."""
        return self.input.startswith(REPROCESSING)

    @property
    def shown_in(self) -> str:
        """The folder where readers find the outcomes. Publishing a micro-batch moves its outcomes to this folder."""
        return shown(self.out) if self.is_epoch else self.out

    @property
    def is_finished(self) -> bool:
        """Whether this batch will publish no more outputs."""
        return self.status is not BatchStatus.STARTED


def shown(out: str) -> str:
    """Return the output folder of a query, given it or its hidden folder. Keeps the options of the URL."""
    path, options = path_and_options(out)
    return path.removesuffix(f"/{HIDDEN_EPOCHS}") + options


def describe(record: BatchRecord) -> dict[str, Any]:
    """Return the JSON form of a batch in the ledger."""
    names = ("batch_id", "number", "status", "algorithm", "rounds", "started_at", "updated_at")
    described = {name: getattr(record, name) for name in names}
    counts = dict(sorted(record.counts.items()))
    return {**described, "counts": counts, "out": record.shown_in, "input": record.input}


def check_id(batch_id: str) -> None:
    """Raise `BatchRefusedError` for an invalid batch id."""
    if not _ID.fullmatch(batch_id):
        raise BatchRefusedError(
            f"The batch id {batch_id!r} is invalid: use up to 64 letters, digits, '.', '_' and '-'."
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
    """Decode the row of a batch. Raises `StoredDataError` if the row is corrupt."""
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
    """The row that counts a table's batches, and the settings that are read with it."""

    next: int = 1  # the next batch number
    algorithm: str | None = None  # of the table's batches; None before the first batch
    first_batch: str = ""
    etag: str | None = None  # None before the first batch
    settings: TableSettings = field(default_factory=TableSettings)  # read with the counter, stored elsewhere

    def operation(self) -> Operation:
        """Return an operation that stores the counter, unless its row has changed since it was read."""
        properties: dict[str, Value] = {
            "Next": Int64(self.next),
            "FirstBatch": self.first_batch,
            "Algorithm": self.algorithm or "",
        }
        return written(COUNTER, properties, self.etag)


def read_counter(row: Row) -> Counter:
    """Decode the row of the counter. Raises `StoredDataError` if the row is corrupt."""
    values = row.properties
    with reading_row("The counter of batches", row):
        next_, algorithm = number(values, "Next"), text(values, "Algorithm")
        return Counter(next_, algorithm, text(values, "FirstBatch"), row.etag)


def began(record: BatchRecord) -> Operation:
    """Return an operation that inserts the marker of an open batch, the row `!open-{id}`."""
    return Operation.insert_or_replace(OPEN + record.batch_id, {"Number": Int64(record.number)})


def past_marker(record: BatchRecord) -> Operation:
    """Return an operation that inserts the marker of a finished batch. The batch that ended last sorts first."""
    time = _inverted(to_microseconds(record.updated_at))
    return Operation.insert_or_replace(f"{PAST}{time}-{record.batch_id}", {})


def _inverted(time: int) -> str:
    """Encode a time in microseconds so that later times sort first. Times before 1970 are encoded as 1970."""
    return f"{10**_DIGITS - 1 - max(time, 0):0{_DIGITS}}"


def id_of(marker: str) -> str:
    """Return the batch id in the row key of a marker."""
    is_past = marker.startswith(PAST)
    return marker[len(PAST) + _DIGITS + 1 :] if is_past else marker.removeprefix(OPEN)


def _number(marker: Row) -> int:
    with reading_row("The marker of a batch", marker):
        return number(marker.properties, "Number")


class Ledger:
    """Reads and records the batches of one table."""

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
        """Begin a batch, or return its record if it was begun with the same input. Costs two or three requests.

        `input_` describes log, app and options. `out` is the output folder. Before a round is committed, it may differ
        from that of the record: `begin_again` changes it. Stores the settings that `demands` requires.

        Raises `BatchRefusedError` if the id is invalid, was abandoned, or was begun with other input or another folder,
        or if the table has another algorithm. Raises `UsageError` if the table does not meet the demands, and
        `RetriesExhaustedError` after too many conflicts.
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
                    return _resumed(existing, asked)
                await tries.pause(error)
            except RowChangedError as error:
                await tries.pause(error)

    async def _begin(self, asked: BatchRecord, demands: TableDemands | None) -> BatchRecord:
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

    async def _counter(self, algorithm: str | None = None) -> Counter:
        """Read the counter and settings in one request. Raises `BatchRefusedError` for a table of another algorithm."""
        rows = {row.row_key: row async for row in rows_between(self._table, PARTITION, COUNTER, OF_TABLE)}
        counter = read_counter(rows[COUNTER]) if COUNTER in rows else Counter()
        if algorithm is not None and counter.algorithm not in (None, algorithm):
            raise BatchRefusedError(
                f"The table was processed with the algorithm {counter.algorithm} (batch {counter.first_batch}). "
                f"{algorithm} would not recognise duplicates: use {counter.algorithm}, or another table."
            )
        return replace(counter, settings=read_settings(rows[OF_TABLE])) if OF_TABLE in rows else counter

    async def get(self, batch_id: str) -> BatchRecord:
        """Return the record of a batch. Raises `BatchRefusedError` if there is no such batch. Costs one request."""
        record = await self.find(batch_id)
        if record is None:
            raise BatchRefusedError(f"There is no batch {batch_id}: `consistent batches` lists all batches.")
        return record

    async def find(self, batch_id: str) -> BatchRecord | None:
        """Return a batch's record, or `None` if missing. Raises `BatchRefusedError` for a bad id. Costs one request."""
        check_id(batch_id)
        row = await self._table.get(PARTITION, batch_id)
        return None if row is None else read_record(row)

    async def check_folder(self, batch_id: str, out: str) -> None:
        """Raise `BatchRefusedError` if a batch was abandoned, or has outcomes in another folder. Costs one request."""
        record = await self.find(batch_id)
        if record is not None:
            _check_folder(record, out)

    async def choose_attempt(self, record: BatchRecord, attempt: str) -> BatchRecord:
        """Record which attempt at the next round counts, unless another driver has already recorded an attempt.

        Returns the batch with the attempt that counts, or with more rounds if that attempt is already committed. Raises
        `BatchRefusedError` if another driver ended or changed the batch. Costs one request, or two after a conflict.
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
        """Record that the outcomes of a round are complete. Return the stored record, even if another driver stored it.

        `number` is 0 for the first round. `counts` are added to the batch's. `routable` is the number of the round's
        outputs that have a handler. Raises `BatchRefusedError` if another driver abandoned or changed the batch.
        """
        total = {key: record.counts.get(key, 0) + counts.get(key, 0) for key in {**record.counts, **counts}}
        return await self._update(
            record, replace(record, rounds=number + 1, counts=total, last_routable=routable, attempt="")
        )

    async def begin_again(self, record: BatchRecord, out: str | None = None) -> BatchRecord:
        """Restart a batch: discard its committed rounds, and return the new record. `out`: by default, as before.

        Raises `BatchRefusedError` if another driver has changed the batch.
        """
        wanted = replace(record, out=out or record.out, rounds=0, counts={}, last_routable=0, attempt="")
        return await self._update(record, wanted, exactly=True)

    async def publish(self, record: BatchRecord) -> BatchRecord:
        """Mark a batch as published and immutable after its last round is committed. Raises as `commit_round` does."""
        return await self._update(record, replace(record, status=BatchStatus.PUBLISHED))

    async def abandon(self, batch_id: str) -> BatchRecord:
        """End a batch without publishing. Its versions stay. Raises `BatchRefusedError` for a published batch."""
        record = await self.get(batch_id)
        if not record.is_finished:
            record = await self._update(record, replace(record, status=BatchStatus.ABANDONED))
        if record.status is BatchStatus.PUBLISHED:
            raise BatchRefusedError(f"Batch {batch_id} is published and cannot be abandoned.")
        return record

    async def _update(
        self, record: BatchRecord, wanted: BatchRecord, *, exactly: bool = False
    ) -> BatchRecord:
        """Store `wanted`, or return the stored record if it is as far along. Otherwise, raise `BatchRefusedError`.

        `exactly`: raise also for a record that is further along.
        """
        changed = replace(wanted, updated_at=self._now())
        operations = [Operation.replace(record.batch_id, record_properties(changed), record.etag)]
        if changed.is_finished:
            operations += [Operation.delete(OPEN + changed.batch_id), past_marker(changed)]
        try:
            etag, *_ = await self._table.transact(PARTITION, operations)
        except (RowChangedError, RowNotFoundError):
            current = await self.get(record.batch_id)
            has_come_as_far = current.rounds >= changed.rounds and current.is_finished >= changed.is_finished
            if exactly:
                has_come_as_far = changed == replace(current, etag=record.etag, updated_at=changed.updated_at)
            if not has_come_as_far or (
                current.status is BatchStatus.ABANDONED and changed.status is not BatchStatus.ABANDONED
            ):
                raise _taken(current) from None
            return current
        await self._table.barrier()
        return replace(changed, etag=etag)

    async def batches(self, limit: int, after: BatchRecord | None = None) -> list[BatchRecord]:
        """Return up to `limit` batches, newest first: open batches by number, then finished batches by end time.

        With `after`, returns only the finished batches that follow that batch. Costs one request per batch, and one for
        every 1,000 markers.
        """
        markers: list[Row] = []
        if after is None:
            markers = [row async for row in rows_between(self._table, PARTITION, OPEN, OPEN + LAST)]
            markers.sort(key=_number, reverse=True)
        first = PAST if after is None else f"{past_marker(after).row_key}!"
        async for page in pages(partial(self._table.query, PARTITION, first, PAST + LAST)):
            markers += page.rows
            if len(markers) >= limit:
                break
        records = [await self.find(id_of(marker.row_key)) for marker in markers[:limit]]
        return [record for record in records if record is not None]

    async def algorithm(self) -> tuple[str, str] | None:
        """Return the table's algorithm and the id of its first batch, or `None` if there is none. Costs one request."""
        counter = await self._counter()
        return None if counter.algorithm is None else (counter.algorithm, counter.first_batch)

    async def check_table(self, algorithm: str, demands: TableDemands | None = None) -> None:
        """Raise `BatchRefusedError` if the table has another algorithm, or `UsageError` if it cannot meet `demands`.

        Changes nothing. Costs one request. In a table without batches, choosing keyed draws or reprocessing costs one
        more for every 1,000 rows.
        """
        counter = await self._counter(algorithm)
        if demands is not None:
            has_batches = counter.algorithm is not None
            await demands.settings_after(self._table, counter.settings, has_batches=has_batches)

    async def open_batches(self) -> OpenBatches:
        """Return the batches that may still publish. Costs one request for every 1,000 open batches."""
        open_batches, _ = await self.snapshot()
        return open_batches

    async def snapshot(self) -> tuple[OpenBatches, TableSettings]:
        """Return the open batches and the table's settings. Costs one request for every 1,000 open batches."""
        # The scan reads the counter before the markers, so a batch with a lower number and no marker has ended.
        next_, numbers, settings = 1, set[int](), TableSettings()
        async for row in rows_between(self._table, PARTITION, COUNTER, OPEN + LAST):
            if row.row_key == COUNTER:
                next_ = read_counter(row).next
            elif row.row_key == OF_TABLE:
                settings = read_settings(row)
            else:
                numbers.add(_number(row))
        return OpenBatches(next_, frozenset(numbers)), settings

    async def prune(self, before: int, *, dry_run: bool = False) -> int:
        """Delete the rows of batches that ended before the time `before`. Return the number of batches.

        `before` is in microseconds since 1970 UTC. With `dry_run`, only counts the batches. Costs one request for every
        1,000 batches, and a transaction for every 50 batches. Raises `RetriesExhaustedError` after too many conflicts.
        """
        count, tries = 0, self._retries.start()
        first = f"{PAST}{_inverted(before - 1)}"
        if dry_run:
            return len([row async for row in rows_between(self._table, PARTITION, first, PAST + LAST)])
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
    """Yield all batches of a table, ordered by id. Costs one request for every 1,000 batches."""
    async for row in rows_between(table, PARTITION, "0", LAST):
        yield read_record(row)


def _check_folder(record: BatchRecord, out: str) -> None:
    if record.status is BatchStatus.ABANDONED:
        raise BatchRefusedError(f"Batch {record.batch_id} was abandoned: run its messages under a new id.")
    if record.rounds and record.out != out:
        raise BatchRefusedError(
            f"Batch {record.batch_id} has outcomes in {record.out}: run it again with --batch-id {record.batch_id} "
            f"--out {record.out}."
        )


def _resumed(existing: BatchRecord, asked: BatchRecord) -> BatchRecord:
    _check_folder(existing, asked.out)
    if existing.input != asked.input:
        raise BatchRefusedError(
            f"Batch {existing.batch_id} was begun with other input: {existing.input}. Now it is: {asked.input}. "
            f"Use another batch id for this input."
        )
    return existing


def _taken(record: BatchRecord) -> BatchRefusedError:
    if record.status is BatchStatus.ABANDONED:
        return BatchRefusedError(f"Batch {record.batch_id} was abandoned while it ran: use a new id.")
    return BatchRefusedError(
        f"Batch {record.batch_id} is being run by another process: wait, then run it again with its id."
    )


# A consumer batch acknowledges in bulk that the outputs of single messages are published: one transaction for thousands
# of messages. Versions record the number of the batch, and truncation keeps them until the batch is published. The
# batch is published once all of its messages have published their outputs. If a consumer dies, its batch stays open.
# Abandon the batch (`consistent batches --abandon`) after the queue has redelivered its messages.

INPUT = "single messages of a consumer"  # the recorded input of a consumer batch


@dataclass(slots=True, eq=False)
class ConsumerBatch:
    """A batch of a consumer of single messages, with the messages that keep it open."""

    record: BatchRecord
    began_at: int
    running: int = 0  # the number of messages that are being handled
    failed: set[Hashable] = field(default_factory=set)  # messages that may have unpublished outputs

    @property
    def number(self) -> int:
        """The batch number that versions record."""
        return self.record.number


@dataclass(eq=False)
class ConsumerBatches:
    """Begins and ends the batches of one consumer. Each lasts at least `length` microseconds."""

    ledger: Ledger
    clock: Clock
    new_id: Callable[[], str]
    length: int
    _current: ConsumerBatch | None = None
    _former: list[ConsumerBatch] = field(default_factory=list)

    async def enter(self) -> ConsumerBatch:
        """Return the batch for a new message. Beginning a new batch costs two or three requests."""
        batch = self._current
        if batch is None or self.clock() - batch.began_at >= self.length:
            record = await self.ledger.begin(f"consumer-{self.new_id()}", INPUT, "-")
            batch = ConsumerBatch(record, self.clock())
            self._retire()
            self._current = batch
        batch.running += 1
        return batch

    async def leave(self, batch: ConsumerBatch, message: Hashable | None) -> None:
        """Record that a message has published its outputs. End former batches that no message keeps open.

        `message` is `None` if it made no version. Costs two requests for each batch that ends.
        """
        batch.running -= 1
        for each in (*self._former, batch):
            each.failed.discard(message)
        await self._end_former()

    def fail(self, batch: ConsumerBatch, message: Hashable) -> None:
        """Record that a message may have unpublished outputs. The batch stays open until the message succeeds."""
        batch.running -= 1
        batch.failed.add(message)

    async def flush(self) -> int:
        """End all batches that can end, including the current batch. Returns how many batches stay open."""
        self._retire()
        await self._end_former()
        return len(self._former)

    def _retire(self) -> None:
        if self._current is not None:
            self._former.append(self._current)
            self._current = None

    async def _end_former(self) -> None:
        open_: list[ConsumerBatch] = []
        try:
            # Other messages may leave, and end batches, during each request.
            while ended := [each for each in self._former if not each.running and not each.failed][:1]:
                self._former.remove(ended[0])
                open_ += ended
                with suppress(StoreUnavailableError, RetriesExhaustedError):  # to retry later
                    with suppress(BatchRefusedError):  # an operator has abandoned the batch
                        await self.ledger.publish(ended[0].record)
                    open_.pop()
        finally:
            self._former += open_


MARK = "_batch"  # the prefix of all commit markers


def mark_prefix(token: str) -> str:
    """Return the common prefix of the names of a batch's commit markers. `token` is `BatchRecord.token`."""
    return f"{MARK}-{token}-"


def mark_of(token: str, sizes: Mapping[str, int]) -> str:
    """Return the name of a round's commit marker, with a digest of `sizes`: the sizes of the round's files by name."""
    return mark_prefix(token) + sha256(repr(sorted(sizes.items())).encode()).hexdigest()[:32]
