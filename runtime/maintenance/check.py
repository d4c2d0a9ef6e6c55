"""Check the consistency of all rows of a table, and repair derived rows.

A partition is repaired only if all of its faults are in rows that are derived from others: the index of message ids,
counts and markers. Otherwise it must be restored from an export.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

from eventstore import Int64, KeyRange, Operation, Properties, Row, Table, Value, pages
from eventstore.errors import PayloadTooLargeError, RowError
from eventstore.header import EVENT, HEADER, is_header, is_tombstone
from eventstore.limits import MAX_OPERATIONS
from eventstore.port import ANY_ETAG
from eventstore.stream import read_range
from runtime import dead_letters, documents, leases
from runtime.algorithms.outbox import stores
from runtime.algorithms.outbox.entity import ENTITY, Entity, read_entity
from runtime.archives import MARK as IMPORT
from runtime.errors import StoredDataError, UsageError
from runtime.ledger import ledger
from runtime.ledger.batch import OpenBatches
from runtime.ledger.settings import OF_TABLE, read_settings
from runtime.maintenance import policies
from runtime.messages.envelope import FIRST as PROCESSED
from runtime.publishing import last_hop, records
from runtime.retries import READ_AGAIN
from runtime.versions import dead_letter_rows, index
from runtime.versions.check import DamagedRow, Fault, LettersCheck, RowsCheck, StreamCheck, with_changes
from runtime.versions.head import is_of_state
from runtime.versions.properties import number, reading_row, shown, text

ISSUED = "_issued"  # the partition of logs whose tokens were issued
MOST_FAULTS = 1000  # the maximum number of faults of a range that are kept and shown
_ALL = KeyRange()


@dataclass(slots=True)
class Checked:
    """The result of a check: counts, and at most `MOST_FAULTS` each of the remaining and of the repaired faults."""

    rows: int = 0
    streams: int = 0
    damaged: int = 0  # the number of remaining faults
    mended: int = 0  # the number of repaired faults
    faults: list[Fault] = field(default_factory=list)
    repaired: list[Fault] = field(default_factory=list)

    def add(self, faults: Sequence[Fault], *, repaired: bool = False) -> None:
        """Add the faults of a partition to the remaining or, if `repaired`, to the repaired faults."""
        if repaired:
            self.repaired += faults[: MOST_FAULTS - len(self.repaired)]
            self.mended += len(faults)
        else:
            self.faults += faults[: MOST_FAULTS - len(self.faults)]
            self.damaged += len(faults)

    def update(self, other: Checked) -> None:
        """Add the result of another key range."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def document(self) -> dict[str, Any]:
        """Return the result in its JSON form, to pass to `of` in another process."""
        return asdict(self)

    @classmethod
    def of(cls, document: dict[str, Any]) -> Checked:
        """Return a result from its JSON form, which `document` returns."""
        faults, repaired = ([Fault(**each) for each in document[name]] for name in ("faults", "repaired"))
        return cls(**{**document, "faults": faults, "repaired": repaired})


async def check_table(table: Table, keys: KeyRange = _ALL, *, repair: bool = False) -> Checked:
    """Check the rows of a key range. `repair`: rebuild the derived rows of partitions that have no other faults.

    Costs one request for every 1,000 rows or 4 MiB, and three or more per corrupt partition.
    """
    checked, used = Checked(), []
    check: _PartitionCheck | None = None
    async for row in read_range(table, None, keys, substitute=DamagedRow.of):
        if check is None or check.key != row.partition_key:
            if check is not None:
                await _finish(table, check, checked, repair=repair)
            check = _PartitionCheck(row.partition_key)
        checked.rows += 1
        check.add(row)
        if row.partition_key.startswith(stores.PARTITION) and row.properties.get(stores.USED) is True:
            used.append(row)
    if check is not None:
        await _finish(table, check, checked, repair=repair)
    checked.add(await _orphaned_tokens(table, used))
    return checked


async def _finish(table: Table, check: _PartitionCheck, checked: Checked, *, repair: bool) -> None:
    """Add the result of a partition to `checked`. A partition with faults is read again first, as it may have changed.

    With `repair`, rebuild rows of the partition if all of its faults can be repaired.
    """
    faults = check.compared()
    checked.streams += isinstance(check.of_object, StreamCheck)
    if not faults:
        return
    again = _PartitionCheck(check.key)
    async for page in pages(partial(table.query, check.key, "!", "~"), DamagedRow.of):
        for row in page.rows:
            again.add(row)
    found, guard = again.compared(), again.guard
    if guard is None or isinstance(again.of_object, _LedgerCheck):
        # No row changes with every write, so a read may be inconsistent: report only faults of both reads.
        found = [fault for fault in found if fault in faults]
    else:
        after = await table.get(check.key, guard.row_key)
        if after is None or after.etag != guard.etag:
            return
    if found:
        is_repaired = repair and all(fault.repair for fault in found) and await _rebuild(table, again)
        checked.add(found, repaired=is_repaired)


async def _rebuild(table: Table, check: _PartitionCheck) -> bool:
    """Write the rebuilt rows. Return False after a conflict, if a row is too large, or if the store does not answer."""
    rebuilt, guard = check.rebuilt, check.guard
    kept: Properties = {}
    if guard is not None:
        kept = rebuilt.pop(guard.row_key, guard.properties) or guard.properties
    # Deletions last, as the changes may take several transactions.
    changes = [Operation.insert_or_replace(key, row) for key, row in rebuilt.items() if row is not None]
    changes += [Operation.delete(key, ANY_ETAG) for key, row in rebuilt.items() if row is None]
    etag, most = "" if guard is None else guard.etag, MAX_OPERATIONS - 1
    try:
        for start in range(0, max(len(changes), 1), most):
            first = [] if guard is None else [Operation.replace(guard.row_key, kept, etag)]
            etag, *_ = await table.transact(check.key, [*first, *changes[start : start + most]])
    except (*READ_AGAIN, RowError, PayloadTooLargeError):
        return False
    return True


class _PartitionCheck(RowsCheck):
    """Checks one partition: the rows of its stream or entity, and all other rows."""

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.of_object: RowsCheck | None = None
        if key == ledger.PARTITION:
            self.of_object = _LedgerCheck()
        elif key == records.PARTITION:
            self.of_object = _PublishingCheck()
        self._is_foreign = False
        self._is_marked = False

    def add(self, row: Row) -> None:
        if self.of_object is None and not isinstance(row, DamagedRow):
            if row.row_key == HEADER and is_of_state(row.properties):
                self.of_object = StreamCheck(row)
                return
            if row.row_key == ENTITY:
                self.of_object = _EntityCheck(row)
                return
        is_separate = row.row_key == documents.MARKER or row.row_key.startswith((PROCESSED, documents.PREFIX))
        if self.of_object is not None and not is_separate:
            self.of_object.add(row)
            return
        super().add(row)
        if "-" in self.key and self.unreadable.isdisjoint((HEADER, ENTITY)):
            self._find_owner(row, is_separate=is_separate)

    def take(self, row: Row) -> None:
        check_row(row)

    def compared(self) -> list[Fault]:
        """Compare the rows with each other, and return all faults. Call this after adding all rows."""
        if self.of_object is None:
            return self.faults
        self.of_object.compare()
        self.guard = self.of_object.guard
        self.rebuilt |= self.of_object.rebuilt
        return [*self.faults, *self.of_object.faults]

    def _find_owner(self, row: Row, *, is_separate: bool) -> None:
        """Report a row that lacks its header or marker, or that is itself an invalid header, entity or marker.

        `is_separate`: the row belongs to documents or to the deduplication store, which need no entity.
        """
        key = row.row_key
        # Other programs may have streams in the table.
        self._is_foreign = self._is_foreign or (key == HEADER and (is_header(row) or is_tombstone(row)))
        if key == documents.MARKER:
            self._is_marked = True
        elif key.startswith(documents.PREFIX):
            if not self._is_marked:
                self._is_marked = True
                self.report(documents.MARKER, "is missing, so a sweep ignores its documents", repair=True)
                self.rebuilt[documents.MARKER] = {}
        elif key == HEADER:
            if not self._is_foreign:
                self.report(HEADER, "is not the header of a stream")
        elif key.startswith((index.PREFIX, dead_letter_rows.PREFIX)) or (
            key.startswith(EVENT) and not self._is_foreign
        ):
            self.report(key, "belongs to a stream that has no header")
        elif key.startswith((ENTITY, documents.MARKER)) and not is_separate:
            self.report(key, "has the row key of an entity or marker, but is neither")


class _EntityCheck(RowsCheck):
    """Checks that an entity and its dead letters decode, and that the counts in the entity are right."""

    def __init__(self, row: Row) -> None:
        super().__init__(row.partition_key, row)
        self._row = row
        self._letters = LettersCheck()

    def take(self, row: Row) -> None:
        if row.row_key.startswith(dead_letter_rows.PREFIX):
            self._letters.take(row)
        else:
            self.report(row.row_key, "is not a row of an entity")

    def compare(self) -> None:
        stored = self._row.properties
        wrong, is_certain = self._letters.recounted(stored)
        if stored.get("LetterRows", 0) != self._letters.rows:
            wrong["LetterRows"] = self._letters.rows or None
        recounted = with_changes(stored, {**wrong, "Pending": 0})
        try:
            entity = read_entity(replace(self._row, properties=recounted))
        except StoredDataError as error:
            self.report(ENTITY, error.problem)
            return
        self._compare_entries(entity)
        pending, counted = entity.pending, stored.get("Pending")
        if counted != pending or isinstance(counted, bool):
            # A count that is too high is not repaired, as entries may be lost.
            wrong["Pending"] = pending
            is_certain = is_certain and not (isinstance(counted, int) and counted > pending)
        if wrong:
            self.report(ENTITY, f"has wrong counts: {', '.join(wrong)}", repair=is_certain)
            self.rebuilt[ENTITY] = {**recounted, "Pending": pending}

    def _compare_entries(self, entity: Entity) -> None:
        if entity.algorithm not in {"outbox", "deduplication-store", "tokens"}:
            self.report(ENTITY, f"has an unknown algorithm, {shown(entity.algorithm)}")
        if entity.schema < 1:
            self.report(ENTITY, f"has an invalid schema version, {entity.schema}")
        newest = max(entity.outbox.values(), key=lambda entry: entry.version, default=None)
        if newest is None:
            return
        versions = {entry.version for entry in entity.outbox.values()}
        if newest.version > entity.version:
            self.report(ENTITY, f"has {entity.version} versions, but an entry of version {newest.version}")
        elif newest.version == entity.version and newest.now != entity.last_now:
            self.report(ENTITY, f"has another time than its version {newest.version}")
        if len(versions) < len(entity.outbox) or min(versions) < 1:
            self.report(ENTITY, "has entries with duplicate or invalid versions")


class _Batch(NamedTuple):
    """The marker, number and algorithm of a batch."""

    marker: str
    properties: Properties
    number: int
    algorithm: str
    is_reprocessing: bool


class _LedgerCheck(RowsCheck):
    """Checks that counter, markers and batches of the ledger agree. Needs a few hundred bytes of memory per batch."""

    def __init__(self) -> None:
        super().__init__(ledger.PARTITION)
        self._counter: ledger.Counter | None = None
        self._markers: dict[str, Properties] = {}
        self._batches: dict[str, _Batch] = {}

    def take(self, row: Row) -> None:
        if row.row_key == ledger.COUNTER:
            self.guard = row
            self._counter = ledger.read_counter(row)
        elif row.row_key == OF_TABLE:
            read_settings(row)
        elif row.row_key.startswith((ledger.OPEN, ledger.PAST)):
            self._markers[row.row_key] = row.properties
        else:
            record = ledger.read_record(row)
            marker = ledger.past_marker(record) if record.is_finished else ledger.began(record)
            of_record = (record.number, record.algorithm, record.is_reprocessing)
            self._batches[row.row_key] = _Batch(marker.row_key, marker.properties, *of_record)

    def compare(self) -> None:
        if self._counter is not None:
            self._compare_counter(self._counter)
            self._compare_markers()
        elif ledger.COUNTER not in self.unreadable and (self._markers or self._batches):
            self.report(ledger.COUNTER, "is missing, although there are batches")

    def _compare_counter(self, counter: ledger.Counter) -> None:
        by_number: dict[int, list[str]] = {}
        for batch_id, batch in sorted(self._batches.items()):
            if not batch.is_reprocessing:  # its number may be that of a batch of the table that was replaced
                by_number.setdefault(batch.number, []).append(batch_id)
            if batch.algorithm != counter.algorithm:
                self.report(batch_id, f"has the algorithm {batch.algorithm}, the table {counter.algorithm}")
        last = max(by_number, default=0)
        if counter.next <= last:
            self.report(ledger.COUNTER, f"has the next number {counter.next}, but a batch has {last}")
        for number_, (first, *others) in by_number.items():
            if others:
                self.report(others[-1], f"has the same number as {first}, {number_}")

    def _compare_markers(self) -> None:
        left = dict(self._markers)
        marked = {ledger.id_of(marker) for marker in left}
        for batch_id, batch in self._batches.items():
            marker = left.pop(batch.marker, None)
            if batch.marker in self.unreadable:
                continue
            if marker is None:
                self.report(batch_id, f"has no marker {batch.marker}", repair=batch_id not in marked)
            elif _typed(marker) != _typed(batch.properties):
                is_numbered = isinstance(marker.get("Number"), Int64)
                self.report(batch.marker, "has another number than its batch", repair=not is_numbered)
            else:
                continue
            self.rebuilt[batch.marker] = batch.properties
        for row_key in left:
            batch_id = ledger.id_of(row_key)
            if batch_id in self._batches:
                self.report(row_key, f"is not the marker of the batch {batch_id}")
            elif batch_id not in self.unreadable:
                # The marker of an open batch is kept, as the batch may have unpublished versions.
                is_past = row_key.startswith(ledger.PAST)
                self.report(row_key, f"is the marker of a missing batch, {batch_id!r}", repair=is_past)
                self.rebuilt[row_key] = None


def _typed(properties: Properties) -> dict[str, tuple[type, Value]]:
    return {name: (type(value), value) for name, value in properties.items()}


class _PublishingCheck(RowsCheck):
    """Checks that each slice and record belongs to a publication. These faults cannot be repaired."""

    def __init__(self) -> None:
        super().__init__(records.PARTITION)
        self._slices: dict[str, int] = {}
        self._parts: list[tuple[str, str, int]] = []

    def take(self, row: Row) -> None:
        kind, key = row.row_key[:2], row.row_key[2:]
        if kind == records.PUBLICATION:
            self._slices[key] = records.read_publication(row).slices
        elif kind == records.SLICE:
            records.read_slice(row)
            self._parts.append((row.row_key, key.rpartition(":")[0], records.number_of_slice(row)))
        elif kind == records.RECORD:
            records.read_record(row)
            self._parts.append((row.row_key, key.partition(":")[0], 0))
        else:
            self.report(row.row_key, "is not a row of a publication")

    def compare(self) -> None:
        for row_key, key, slice_ in self._parts:
            slices = self._slices.get(key)
            if slices is None and records.PUBLICATION + key not in self.unreadable:
                self.report(row_key, f"belongs to a missing publication, {key!r}")
            elif slices is not None and slice_ >= slices:
                self.report(row_key, f"is beyond the {slices} slices of its publication")


def check_row(row: Row) -> None:
    """Raise `StoredDataError` for a row that is corrupt or has an invalid key. Ignores rows of other programs."""
    key = row.partition_key
    for kind, (read, row_keys, problem) in _SEPARATE.items():
        if key == kind or (kind[-1] == "." and key.startswith(kind)):
            read(row)
            if not re.fullmatch(row_keys, row.row_key, re.DOTALL):
                raise StoredDataError(problem, row.row_key, key)
            return
    if "-" in key and row.row_key.startswith(PROCESSED):
        stores.check_processed(row)
    elif "-" in key and row.row_key.startswith(documents.PREFIX):
        documents.read_registration(row)


def _read_policy(row: Row) -> None:
    policy = policies.read_policy(row)
    try:
        if policy.rules is not None:
            policy.rules.as_of(policy.set_at, OpenBatches())
    except UsageError as error:
        raise StoredDataError(f"has invalid rules: {error}", row.row_key, row.partition_key) from error


def _read_issued(row: Row) -> None:
    with reading_row("The log whose tokens were issued", row):
        text(row.properties, "Out")


def _read_import(row: Row) -> None:
    with reading_row("The marker of an import", row):
        text(row.properties, "Digest"), number(row.properties, "Rows"), number(row.properties, "Files")


def _read_token(row: Row) -> None:
    chain, pattern, problem = row.partition_key.removeprefix(stores.PARTITION), "[A-Za-z0-9-]{1,64}", ""
    if not re.fullmatch(f"{pattern}/{pattern}-[A-Za-z_][A-Za-z0-9_]*", f"{chain}/{row.row_key}"):
        problem = "is not a token of a handler"
    elif row.properties.get(stores.USED, True) is not True or not row.properties.keys() <= {stores.USED}:
        problem = "has properties that no token has"
    if problem:
        raise StoredDataError(problem, row.row_key, row.partition_key)


# By partition key, or its prefix if that ends with a dot: how to read a row, the pattern of its key, and the problem
# of a key that does not match.
_SEPARATE: Mapping[str, tuple[Callable[[Row], object], str, str]] = {
    dead_letters.PARTITION: (dead_letters.check_letter, ".*", ""),
    policies.PARTITION: (_read_policy, ".*", ""),
    leases.PARTITION: (leases.read_lease, leases.ROW_KEY, "is not a lease"),
    ISSUED: (_read_issued, "[0-9a-f]{32}", "has a row key that is not a digest of a log"),
    IMPORT: (_read_import, ".*", ""),
    stores.PARTITION: (_read_token, ".*", ""),
    last_hop.PARTITION: (last_hop.read_key, f"{PROCESSED}.*", "is not the key of a delivery"),
}


async def _orphaned_tokens(table: Table, used: Sequence[Row]) -> list[Fault]:
    """Return a fault for each token in `used`, the parents of other tokens, that no entity will delete.

    Costs one request for every 1,000 entities, and one per fault.
    """
    if not used:
        return []
    incoming, handlers, unknown = set[stores.Token](), set[str](), set[str]()
    async for row in read_range(table, ENTITY, _ALL, substitute=DamagedRow.of):
        handler = row.partition_key.partition("-")[0]
        try:
            entity = read_entity(row)
        except StoredDataError:
            unknown.add(handler)
            continue
        if entity.algorithm == "tokens":
            handlers.add(handler)
        incoming.update(entry.tokens.incoming for entry in entity.outbox.values() if entry.tokens)
    faults = []
    problem = "is used, but its entity has finished the message: a redelivery would be handled again"
    for row in used:
        token = stores.Token(row.partition_key.removeprefix(stores.PARTITION), *row.row_key.rsplit("-", 1))
        if token in incoming or token.handler not in handlers - unknown:
            continue
        # Read the token again, as it is deleted after its entity is written. It is reported, not deleted, because a
        # lost outbox may need it.
        if await table.get(row.partition_key, row.row_key) is not None:
            faults.append(Fault(row.partition_key, row.row_key, problem))
    return faults
