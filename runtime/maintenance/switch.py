"""Switch a table to one that reprocessed its history, and fork one object into a table of its own.

After a switch, later batches, streams and consumers use the second table.

The switch is one conditional write to the first table's settings and counter of batches, so it fails if a batch begins
meanwhile. What the second table lacks is copied first: equal objects, of which it has only markers, dead letters,
policies, and the ended batches with their publications. Each step can be repeated.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import NamedTuple

from eventstore import (
    ConcurrencyConflictError,
    KeyRange,
    Operation,
    Partition,
    Row,
    RowError,
    Store,
    Stream,
    Table,
)
from eventstore.header import HEADER
from eventstore.port import Transaction
from runtime.clock import Clock, system_clock
from runtime.dead_letters import PARTITION as LETTERS
from runtime.errors import UsageError
from runtime.ledger.ledger import COUNTER, STATE_BASED, Counter, Ledger, id_of, read_counter
from runtime.ledger.settings import LEDGER, OF_TABLE, TableSettings, has_objects, is_same_table, open_current
from runtime.maintenance.policies import PARTITION as POLICIES
from runtime.messages.envelope import canonical
from runtime.messages.outcome import Reason
from runtime.publishing.records import PARTITION as PUBLICATIONS
from runtime.versions.dead_letter_rows import letters_of
from runtime.versions.head import Head
from runtime.versions.properties import rows_between
from runtime.versions.run import Run, Version
from runtime.versions.stream import (
    History,
    StreamUpdate,
    append,
    copy_versions,
    find_versions,
    read_whole,
    state_headers,
    stream_heads,
    stream_partition,
)

_ALL = KeyRange()
_LAST = "~"


async def switch(store: Store, name: str, to: str, clock: Clock = system_clock) -> int | None:
    """Replace table `name` with table `to`, which has reprocessed it, or switch back to `to`, which `name` replaced.

    If another table has replaced `name`, then `name` stands for that table. Return the number of objects copied, or
    `None` if `to` has already replaced `name`. Costs a request for every 1,000 objects, and two for each object that is
    copied or has dead letters. After an interruption, call `switch` again.

    Raises `UsageError` while a batch is open, if messages came in since the reprocessing or, when switching back, if
    `name` has changed since it replaced `to`. Raises `ConcurrencyConflictError` if a batch begins during the call.
    """
    asked, (name, old) = name, await open_current(store, name, make=False)
    new = await store.table(to, make=False)
    of_old, of_new = await TableSettings.of(old), await TableSettings.of(new)
    if is_same_table(name, to):
        if is_same_table(asked, to):
            raise UsageError(f"Switch {to} to another table, which reprocessed it or which it replaced.")
        if of_old.follows is not None:  # interrupted before its last write
            first = await store.table(of_old.follows, make=False)
            await _store(old, _in_use(of_old, await TableSettings.of(first)))
        return None
    counter = await _counter(old)  # before the open batches: a batch that begins meanwhile changes it
    for table, each in ((old, name), (new, to)):
        if (await Ledger(table, clock).open_batches()).numbers:
            raise UsageError(f"A batch of {each} is open: finish or abandon it first (`consistent batches`).")
    if is_same_table(of_new.switched_to, name):
        if await _contents(old) != of_new.switched_as:
            raise UsageError(
                f"{name} was changed since it replaced {to}, by a batch, a message or a command: switching back would "
                f"lose that."
            )
        await _copy_rows(old, new, PUBLICATIONS, is_exact=True)
        await _store(old, replace(of_old, follows=to), counter)
        await _store(new, replace(of_new, switched_to=None, switched_as=None))
        return 0
    if not is_same_table(of_new.follows, name):
        raise UsageError(f"{to} does not reprocess {name}: run `consistent reprocess --into {to}` first.")
    if of_old.follows is not None:
        raise UsageError(f"{name} reprocesses {of_old.follows}: switch {of_old.follows} to {name} first.")
    copied = await _copy(old, new, name, counter.next)
    await _store(old, replace(of_old, switched_to=to, switched_as=await _contents(new)), counter)
    await _store(new, _in_use(of_new, of_old))
    return copied


def _in_use(of_new: TableSettings, of_old: TableSettings) -> TableSettings:
    """Return the settings that the new table gets once it has replaced the old one."""
    owner = of_new.owner and of_old.owner and of_old.owner.after(of_new.owner)
    return replace(of_new, owner=owner or of_new.owner, follows=None)


async def _store(table: Table, settings: TableSettings, counter: Counter | None = None) -> None:
    """Store settings and, unless it is None, the batch counter.

    Raises `ConcurrencyConflictError`, and stores neither, if the settings or the counter have changed since the read.
    """
    operations = [settings.operation()] + ([] if counter is None else [counter.operation()])
    try:
        await table.transact(LEDGER, operations)
        await table.barrier()
    except RowError as error:
        raise ConcurrencyConflictError(LEDGER, "A batch began, or settings changed: try again.") from error


async def _counter(table: Table) -> Counter:
    row = await table.get(LEDGER, COUNTER)
    return Counter(algorithm=STATE_BASED) if row is None else read_counter(row)


async def _contents(table: Table) -> bytes:
    """Return a digest of the contents of a table. It changes with each batch, message and command except publishing."""
    found = sha256(f"{(await _counter(table)).next}".encode())
    async for header in state_headers(table, _ALL):
        found.update(f"\n{header.partition_key} {header.etag}".encode())
    for partition in (LETTERS, POLICIES):
        async for row in rows_between(table, partition, "", _LAST):
            found.update(f"\n{row.row_key} {row.etag}".encode())
    return found.digest()


async def _copy(old: Table, new: Table, name: str, next_batch: int) -> int:
    """Copy the rows that `new` lacks, including objects of handlers that the new app lacks.

    Return the number of objects copied. `name` is the name of `old`, and `next_batch` its next batch number. Raises
    `UsageError` if versions were not reprocessed, an object was forgotten only in `old`, or a batch id is used twice.
    """
    owner = (await TableSettings.of(new)).owner
    followed = {stream.key: stream.head async for stream in stream_heads(new, _ALL)}
    equal, different, behind = list[str](), list[str](), 0
    async for stream in stream_heads(old, _ALL):
        key, head, own = stream.key, stream.head, followed.get(stream.key)
        is_handled = owner is None or stream.handler in owner.handlers
        if is_handled and head.versions > (own.followed if own is not None else head.kept_from - 1):
            behind += 1
        elif own is None or own.shared:
            equal.append(key)
        elif head.tombstone is not None and own.tombstone is None:
            raise UsageError(f"{key} was forgotten in {name} alone: forget it in the other table too.")
        else:
            different.append(key)
    if behind:
        raise UsageError(
            f"{behind:,} objects of {name} have versions that were not reprocessed: run `consistent reprocess` again "
            "with all logs, including those of new messages."
        )
    tokens, theirs = [
        {row.row_key: row.properties.get("Token") async for row in rows_between(table, LEDGER, "", _LAST)}
        for table in (old, new)
    ]
    if both := [key for key, token in tokens.items() if theirs.get(key, token) != token]:
        raise UsageError(
            f"Batch {both[0]} of {name} has the id of a reprocessing: reprocess into another table, with another id."
        )
    for key in equal:
        await _copy_object(old, new, key)
    for key in different:
        await _add_letters(old, new, key)
    for partition in (LETTERS, POLICIES, PUBLICATIONS, LEDGER):
        await _copy_rows(old, new, partition, is_exact=partition == POLICIES)
    counter = await _counter(new)
    # The numbers of copied versions belong to batches that have ended.
    await new.transact(LEDGER, [replace(counter, next=max(counter.next, next_batch)).operation()])
    await new.barrier()
    return len(equal)


def _transactions(rows: Iterable[Row]) -> list[Transaction]:
    from runtime.archives.tables import transactions  # noqa: PLC0415 - Arrow is slow to import

    return list(transactions(rows))


async def _copy_object(old: Table, new: Table, key: str) -> None:
    """Copy an object in one transaction, or run by run if it is large. Each transaction leaves a valid stream."""
    rows = {row.row_key: row async for row in rows_between(old, key, "", _LAST)}
    properties = {**rows[HEADER].properties, "Followed": rows[HEADER].properties["StateVersions"]}
    rows[HEADER] = replace(rows[HEADER], properties=properties)
    handler, _, business_id = key.partition("-")
    first, *more = _transactions(rows.values())
    found = await read_whole(old, handler, business_id) if more else None
    if found is None:
        await new.transact(*first)
        return
    head, runs = found
    history = await find_versions(new, handler, business_id, ())
    if history is None:
        history = History(Stream(stream_partition(new, handler, business_id)), Head(None, head.schema))
    await _copy_runs(history, head, runs, head.versions, head.versions)
    await _add_letters(old, new, key)


async def _copy_runs(history: History, head: Head, runs: Sequence[Run], last: int, followed: int) -> None:
    history = await copy_versions(history, head, runs, last)
    await append(history, StreamUpdate(history.head._replace(followed=followed, shared=False)))


async def _add_letters(old: Table, new: Table, key: str) -> None:
    """Copy the dead letters of an object that `new` lacks, except those whose messages have made versions in `new`."""
    handler, _, business_id = key.partition("-")
    letters = (await letters_of(Partition.exact(old, key))).all
    ids = {each.key for each in letters}
    history = await find_versions(new, handler, business_id, ids) if letters else None
    if history is None or history.head.refuses:
        return
    own = history.letters.all
    there = {(each.key, each.content) for each in own}
    missing = [
        each
        for each in letters
        if (each.key, each.content) not in there
        and (each.reason is Reason.ID_REUSED or not history.has(each.key))
    ]
    if missing:
        first = max(history.head.waiting.last, history.letters.last) + 1
        merged = [*own, *(each._replace(number=at) for at, each in enumerate(missing, first))]
        head = history.head._replace(waiting=history.head.waiting.after(merged))
        await append(history, StreamUpdate(head, letters=merged))


async def _copy_rows(source: Table, target: Table, partition: str, *, is_exact: bool = False) -> None:
    """Copy the rows of a partition. If `is_exact`, delete rows that `source` lacks.

    Of the ledger, skips the counter, the table's settings, and the rows of batches that `target` has.
    """
    there = {row.row_key async for row in rows_between(target, partition, "", _LAST, [])}
    rows = [row async for row in rows_between(source, partition, "", _LAST)]
    if partition == LEDGER:
        own = (COUNTER, OF_TABLE)
        rows = [row for row in rows if row.row_key not in own and id_of(row.row_key) not in there]
    for transaction in _transactions(rows):
        await target.transact(*transaction)
    if is_exact:
        for key in there - {row.row_key for row in rows}:
            await target.transact(partition, [Operation.delete(key)])


class Fork(NamedTuple):
    """One object in a new table: the table's name, the table, and the last version copied."""

    name: str
    table: Table
    version: Version


async def fork(
    store: Store,
    name: str,
    handler: str,
    business_id: str,
    *,
    at: int | None = None,
    into: str | None = None,
    check: Callable[[Version], object] = lambda _: None,
) -> Fork:
    """Copy the versions of one object into a new table: those up to number `at`, or all if it is `None`.

    A `Processor` on the new table continues after the last copied version, with the same key for random numbers.
    `into`: the name of the new table, random by default. Before the table is made, `check` is called with the last
    version. Raises `UsageError` if there is no such version, or if `into` has contents.
    """
    _, table = await open_current(store, name, make=False)
    for spelled in dict.fromkeys((canonical(business_id), business_id)):
        found = await read_whole(table, handler, spelled)
        if found is not None:
            business_id = spelled
            break
    versions = [version for run in found[1] for version in run.all()] if found is not None else []
    kept = [version for version in versions if at is None or version.number <= at]
    if found is None or not kept or (at is not None and kept[-1].number != at):
        raise UsageError(f"{handler} {business_id} has no version {at or 1} in the table.")
    settings, last = await TableSettings.of(table), kept[-1]
    check(last)
    into = into or f"fork{secrets.token_hex(6)}"
    new = await store.table(into)
    if await TableSettings.of(new) != TableSettings() or await has_objects(new):
        raise UsageError("A fork needs a new table: choose another --into.")
    # The fork must not reuse the number of a batch that made one of the versions.
    counter = replace(await _counter(new), next=(await _counter(table)).next)
    await _store(new, TableSettings(settings.owner, settings.draw_key), counter)
    empty = History(Stream(stream_partition(new, handler, business_id)), Head(None, found[0].schema))
    await _copy_runs(empty, *found, last.number, 0)
    return Fork(into, new, last)
