"""Switch a table to one that reprocessed its history, and fork one object into a table of its own.

After a switch, later batches, streams and consumers use the second table.

The switch is one conditional write to the first table's settings and counter of batches, so it fails if a batch begins
meanwhile. Equal objects, which have only markers in the second table, are copied before.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from eventstore import ConcurrencyConflictError, KeyRange, RowError, Store, Stream, Table, Value, pages
from eventstore.header import HEADER
from runtime.clock import Clock, system_clock
from runtime.dead_letters import PARTITION as LETTERS
from runtime.errors import UsageError
from runtime.ledger.ledger import COUNTER, STATE_BASED, Counter, Ledger, read_counter
from runtime.ledger.settings import LEDGER, TableSettings, has_objects
from runtime.maintenance.policies import PARTITION as POLICIES
from runtime.versions.head import HEAD_PROPERTIES, Head, read_head
from runtime.versions.run import Version
from runtime.versions.stream import (
    History,
    StreamUpdate,
    append,
    copy_versions,
    read_whole,
    state_streams,
    stream_partition,
)

_ALL = KeyRange()


async def switch(store: Store, name: str, to: str, clock: Clock = system_clock) -> int:
    """Switch a table to another one, or back to the one that it replaced. Return the number of objects copied.

    Costs a request for every 1,000 objects, and two for each equal object. Raises `UsageError` while a batch is open,
    if messages came in since the reprocessing, and for a switch back after a batch; `ConcurrencyConflictError` if a
    batch begins meanwhile. After an interruption, call it again.
    """
    old, new = await store.table(name, make=False), await store.table(to, make=False)
    of_old, of_new = await TableSettings.of(old), await TableSettings.of(new)
    counter = await _counter(old)  # before the open batches: a batch that begins meanwhile changes it
    for table, each in ((old, name), (new, to)):
        if (await Ledger(table, clock).open_batches()).numbers:
            raise UsageError(f"A batch of {each} is open: finish or abandon it first (`consistent batches`).")
    if of_new.switched_to == name and of_old.follows in (None, to):
        if counter.next != of_new.switched_at:
            raise UsageError(f"{name} has run a batch since it replaced {to}: it cannot be switched back.")
        await _store(old, replace(of_old, follows=to), counter)
        await _store(new, replace(of_new, switched_to=None, switched_at=0))
        return 0
    if of_old.switched_to == to and of_new.follows == name:  # interrupted before its last write
        await _store(new, replace(of_new, follows=None))
        return 0
    if of_new.follows != name:
        raise UsageError(f"{to} does not reprocess {name}: run `consistent reprocess --into {to}` first.")
    if of_old.switched_to is not None:
        raise UsageError(f"{name} is already switched to {of_old.switched_to}: use that, or switch back.")
    if of_new.owner is not None:
        of_old.check_owner(of_new.owner)
    if of_old.follows is not None:
        raise UsageError(
            f"{name} itself reprocesses {of_old.follows}: switch {of_old.follows} to {name} first."
        )
    copied = await _copy_equal(old, new, name)
    counted = await _counter(new)
    # The numbers of copied versions belong to batches that have ended.
    counted = replace(counted, next=max(counter.next, counted.next))
    await new.transact(LEDGER, [counted.operation()])
    switched = replace(of_old, switched_to=to, switched_at=counted.next)
    await _store(old, switched, counter)
    await _store(new, replace(await TableSettings.of(new), follows=None))
    return copied


async def _store(table: Table, settings: TableSettings, counter: Counter | None = None) -> None:
    """Store settings, unless the stored settings or the counter have changed since both were read."""
    operations = [settings.operation()] + ([] if counter is None else [counter.operation()])
    try:
        await table.transact(LEDGER, operations)
        await table.barrier()
    except RowError as error:
        raise ConcurrencyConflictError(
            LEDGER, "A batch began, or the settings changed: try again."
        ) from error


async def _counter(table: Table) -> Counter:
    row = await table.get(LEDGER, COUNTER)
    return Counter(algorithm=STATE_BASED) if row is None else read_counter(row)


async def _copy_equal(old: Table, new: Table, name: str) -> int:
    """Copy the objects of which the second table has only a marker, and the dead letters and policies of the table."""
    from runtime.archives.tables import transactions  # noqa: PLC0415 - Arrow is slow to import

    followed = {
        stream.partition.key: read_head(stream.properties or {})
        async for stream in state_streams(new, _ALL, HEAD_PROPERTIES)
    }
    keys, behind = [LETTERS, POLICIES], 0
    async for stream in state_streams(old, _ALL, HEAD_PROPERTIES):
        head, own = read_head(stream.properties or {}), followed.get(stream.partition.key)
        if head.versions > (own.followed if own is not None else head.kept_from - 1):
            behind += 1
        elif own is None or own.shared:
            keys.append(stream.partition.key)
        elif head.tombstone is not None and own.tombstone is None:
            raise UsageError(
                f"{stream.partition.key} was forgotten in {name} alone: forget it in the other table too."
            )
    if behind:
        raise UsageError(
            f"{behind:,} objects of {name} have versions that were not reprocessed: run `consistent reprocess` again "
            "with all logs, including those of new messages."
        )
    for key in keys:
        rows = [row async for page in pages(partial(old.query, key, "", "~")) for row in page.rows]
        # The header comes last: until then, the marker stays.
        rows.sort(key=lambda row: row.row_key == HEADER)
        if rows and rows[-1].row_key == HEADER:
            properties = rows[-1].properties
            marked: dict[str, Value] = {**properties, "Followed": properties["StateVersions"]}
            rows[-1] = replace(rows[-1], properties=marked)
        for transaction in transactions(rows):
            await new.transact(*transaction)
    await new.barrier()
    return len(keys) - 2


async def fork(table: Table, into: Table, handler: str, business_id: str, at: int | None = None) -> Version:
    """Copy the versions of one object, up to number `at`, into a new table, which makes the same draws.

    Return the last version. A `Processor` on `into` continues from there. Raises `UsageError` if there is no such
    version, or if `into` has other contents.
    """
    found = await read_whole(table, handler, business_id)
    versions = [version for run in found[1] for version in run.all()] if found is not None else []
    kept = [version for version in versions if at is None or version.number <= at]
    if found is None or not kept or (at is not None and kept[-1].number != at):
        raise UsageError(f"{handler} {business_id} has no version {at or 1} in the table.")
    partition = stream_partition(into, handler, business_id)
    if await TableSettings.of(into) != TableSettings() or await has_objects(into):
        raise UsageError("A fork needs a new table: choose another --into.")
    settings, last = await TableSettings.of(table), kept[-1]
    await _store(into, TableSettings(settings.owner, settings.draw_key))
    history = History(Stream(partition), Head(None, last.schema))
    history = await copy_versions(history, found[0], found[1], last.number)
    await append(history, StreamUpdate(history.head._replace(followed=0, shared=False)))
    return last
