"""Truncation: cut away old versions, and remember up to when their messages can no longer be recognised.

Whole runs go, and segments of the tail, from the oldest on. The horizon of a stream is the newest `enqueued_at` among
its cut versions plus the redelivery window; it moves in the same transaction as the first delete, and never back. A
crash anywhere leaves a stream that can be read, and truncating again finishes the work.

What is to be cut is planned and measured first, so that a dry run tells exactly what a run does.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial

from eventstore import Include, Partition, Row, Stream, Table, pages
from eventstore.header import header_row
from eventstore.limits import prepare_row, row_bytes
from eventstore.truncation import CutRows, rows_to_cut
from runtime.algorithms.state_based.truncation_rules import HeldBy, TruncationRules
from runtime.algorithms.state_based.unpublished import StoredOutputs
from runtime.retries import RetryPolicy, until_undisturbed
from runtime.storage import letters
from runtime.storage.damage import placed
from runtime.storage.head import HEAD_PROPERTIES, Head, read_head
from runtime.storage.id_index import index_below
from runtime.storage.letters import Letter, Letters, given_up
from runtime.storage.run import INDEX_PROPERTIES, Run, RunIndex, read_index, read_run
from runtime.storage.tail import NO_EVENT
from runtime.storage.version import RunVersions, Version


@dataclass(frozen=True, slots=True)
class Truncated:
    """What was cut of a stream, or would be: versions, runs, rows and bytes; what is kept, and what `held` more of it.

    `rows` are deleted rows, and `bytes` is by how much the table is smaller then: tails in headers are cut too.
    `letters` were given up.
    """

    stream: str
    versions: int
    runs: int
    kept_from: int
    newest: int
    horizon: int | None
    rows: int = 0
    bytes: int = 0
    held: HeldBy | None = None
    letters: int = 0


async def take_versions(
    table: Table, key: str, rules: TruncationRules, retries: RetryPolicy, take: Callable[[Version], None]
) -> int:
    """Pass what the rules let go of one stream to `take`, and return the number of the newest version, 0 for none.

    A version may be passed several times. Costs one query, and one for each run that goes.
    """
    attempt = partial(_take_once, Partition.exact(table, key), rules, take)
    with placed(table, key):
        return await until_undisturbed(retries.beside(table), attempt)


async def take_letters(
    table: Table, key: str, rules: TruncationRules, retries: RetryPolicy, take: Callable[[Letter], None]
) -> frozenset[int]:
    """Pass the letters of one stream that the rules give up to `take`, and return their numbers.

    A letter may be passed several times. Costs nothing when letters are not given up, else a request for each stream,
    and one more where letters wait.
    """
    if rules.give_up is None:
        return frozenset()
    attempt = partial(_take_letters_once, Partition.exact(table, key), rules.give_up, take)
    with placed(table, key):
        return await until_undisturbed(retries.beside(table), attempt)


async def truncate_stream(
    table: Table,
    key: str,
    rules: TruncationRules,
    retries: RetryPolicy,
    *,
    dry_run: bool = False,
    up_to: int | None = None,
    letters_kept: Collection[int] | None = None,
) -> Truncated | None:
    """Cut away what the rules let go of one stream, by its partition key. Return None when it is gone.

    With `up_to` nothing is cut behind the version of this number: those before are kept elsewhere. With `letters_kept`
    no other letters are given up than those with these numbers, which are kept elsewhere too.

    Costs one query, and one more for each run of single messages that nobody promises to be acknowledged; two more for
    a stream that is or was cut, to measure the rows, also those that an earlier truncation may have left, and one for
    each further 64 of them; and for what is cut a query and one transaction for each 99 rows. Raises
    `RetriesExhaustedError` after too many lost races in a row, and `StoredDataError`.
    """
    attempt = partial(
        _truncate_once,
        Partition.exact(table, key),
        rules,
        dry_run=dry_run,
        up_to=up_to,
        letters_kept=letters_kept,
    )
    with placed(table, key):
        return await until_undisturbed(retries.beside(table), attempt)


async def _read(partition: Partition) -> tuple[Stream, Head, list[RunIndex]] | None:
    """Return a stream, its head, and its runs with the segments of its tail behind them; None when there is none."""
    slice_ = await Stream.try_read(
        partition, slice_size=None, select=INDEX_PROPERTIES, header=HEAD_PROPERTIES
    )
    if slice_ is None:
        return None
    head = read_head(slice_.stream.properties or {})
    runs = [read_index(event) for event in slice_.events]
    return slice_.stream, head, runs + (head.tail.indexes() if head.tail else [])


async def _take_once(partition: Partition, rules: TruncationRules, take: Callable[[Version], None]) -> int:
    found = await _read(partition)
    if found is None:
        return 0
    stream, head, runs = found
    stream, head, _ = await _without_old_letters(stream, head, rules, dry_run=True)
    gone, _ = await _gone(runs, head, rules, StoredOutputs(stream, head.tail))
    last = gone[-1].last if gone else 0
    for index in gone:
        if index.event != NO_EVENT:
            (event,) = await Stream.read_events(stream, index.event, index.event)
            _take(read_run(event), last, take)
    if head.tail is not None and head.tail.first <= last:
        _take(head.tail.run(), last, take)
    return last


def _take(run: Run, last: int, take: Callable[[Version], None]) -> None:
    for version in RunVersions(run):
        if version.number <= last:
            take(version)


async def _take_letters_once(
    partition: Partition, latest: int, take: Callable[[Letter], None]
) -> frozenset[int]:
    stream = await Stream.try_open(partition)
    if stream is None or not letters.read_waiting(stream.properties or {}).count:
        return frozenset()
    old = [letter for letter in (await _letters_of(partition)).waiting if _is_old(latest, letter)]
    for letter in old:
        take(letter)
    return frozenset(letter.number for letter in old)


async def _truncate_once(
    partition: Partition,
    rules: TruncationRules,
    *,
    dry_run: bool,
    up_to: int | None,
    letters_kept: Collection[int] | None,
) -> Truncated | None:
    found = await _read(partition)
    if found is None:
        return None
    stream, head, runs = found
    stream, head, abandoned = await _without_old_letters(
        stream, head, rules, dry_run=dry_run, kept=letters_kept
    )
    gone, held = await _gone(runs, head, rules, StoredOutputs(stream, head.tail))
    if up_to is not None:
        gone = [run for run in gone if run.last <= up_to]
    head = _moved(head, gone, rules) if gone else head
    plan = await _planned(stream, gone, head)
    if plan is not None and not dry_run:
        await _cut(plan)
    versions = sum(run.count for run in gone)
    rows, size = (plan.count, plan.bytes) if plan else (0, 0)
    return Truncated(
        partition.key,
        versions,
        len(gone),
        head.kept_from,
        head.versions,
        head.horizon,
        rows,
        size,
        held,
        abandoned,
    )


async def _without_old_letters(
    stream: Stream,
    head: Head,
    rules: TruncationRules,
    *,
    dry_run: bool,
    kept: Collection[int] | None = None,
) -> tuple[Stream, Head, int]:
    """Give up the letters that were refused long ago. Return the stream and its head after it, and how many.

    Costs a query for a stream with letters, and a transaction when some are given up.
    """
    if rules.give_up is None or not head.waiting.count:
        return stream, head, 0
    before, latest = await _letters_of(stream.partition), rules.give_up
    changed, count = given_up(
        before.all, lambda letter: _is_old(latest, letter) and (kept is None or letter.number in kept)
    )
    if not count:
        return stream, head, 0
    head = replace(head, waiting=head.waiting.after(changed, 0))
    if dry_run:
        return replace(stream, properties=head.properties()), head, count
    _, changes = before.changed(changed)
    return await Stream.set_properties(stream, head.properties(), changes), head, count


async def _letters_of(partition: Partition) -> Letters:
    read = partial(
        partition.table.query, partition.key, letters.PREFIX, letters.LAST, select=letters.PROPERTIES
    )
    return letters.read_letters([row async for page in pages(read) for row in page.rows])


def _is_old(latest: int, letter: Letter) -> bool:
    return letter.refused_at <= latest


@dataclass(frozen=True, slots=True)
class _Plan:
    """What is to be cut of a stream: events before `first_event`, index rows, and segments of the tail of its head.

    Without a head only rows are deleted that an earlier truncation has left.
    """

    stream: Stream
    first_event: int
    rows: CutRows
    index: Sequence[Row] = ()
    head: Head | None = None

    @property
    def count(self) -> int:
        """How many rows go."""
        return len(self.rows.row_keys) + len(self.index)

    @property
    def bytes(self) -> int:
        """By how much the table is smaller afterwards."""
        size = self.rows.bytes + sum(map(row_bytes, self.index))
        if self.head is None:
            return size
        version = self.stream.version
        before = header_row(version, self.stream.first_version, self.stream.properties or {})
        after = header_row(version, self.first_event, self.head.properties())
        return size + prepare_row(before)[1] - prepare_row(after)[1]


async def _planned(stream: Stream, gone: Sequence[RunIndex], head: Head) -> _Plan | None:
    """Return what is to be cut when these runs go, the oldest of a stream: events, and segments of the tail."""
    if not gone:
        if stream.first_version == 1:
            return None
        rows = await rows_to_cut(stream, stream.first_version)
        return _Plan(stream, stream.first_version, rows) if rows.row_keys else None
    if head.tail is not None and head.tail.first < head.kept_from:
        head = replace(head, tail=head.tail.from_version(head.kept_from))
    first_event = (
        max([run.event for run in gone if run.event != NO_EVENT], default=stream.first_version - 1) + 1
    )
    index = await index_below(stream.partition, head.kept_from)
    return _Plan(stream, first_event, await rows_to_cut(stream, first_event), index, head)


async def _cut(plan: _Plan) -> None:
    properties = plan.head.properties() if plan.head else None
    changes = [Include.delete(row.row_key, "*") for row in plan.index]
    await Stream.truncate(plan.stream, plan.first_event, properties, changes, plan.rows)


async def _gone(
    runs: Sequence[RunIndex], head: Head, rules: TruncationRules, outputs: StoredOutputs
) -> tuple[list[RunIndex], HeldBy | None]:
    """Return the runs to cut: the oldest ones that may go, never the newest run; and what holds the next."""
    gone: list[RunIndex] = []
    for run in runs[:-1]:
        if not rules.is_due(run, head.versions):
            break
        held = rules.holder(run)
        if held in (None, HeldBy.UNACKNOWLEDGED) and rules.is_held_by_letter(run, head.waiting):
            held = HeldBy.LETTER
        if held is HeldBy.UNACKNOWLEDGED and not await outputs.of(run, rules.is_acknowledged):
            held = None
        if held is not None:
            return gone, held
        gone.append(run)
    return gone, None


def _moved(head: Head, gone: Sequence[RunIndex], rules: TruncationRules) -> Head:
    dated = [run.newest for run in gone if run.newest is not None]
    horizons = [newest + rules.redelivery_window for newest in dated]
    if head.horizon is not None:
        horizons.append(head.horizon)
    return replace(
        head,
        kept_from=gone[-1].last + 1,
        horizon=max(horizons, default=None),
        undated_cut=head.undated_cut or any(run.undated for run in gone),
    )
