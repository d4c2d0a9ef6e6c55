"""Truncation: cut away old versions, and remember up to when their messages can no longer be recognised.

Whole runs go, and segments of the tail, from the oldest on. The horizon of a stream is the newest `enqueued_at` among
its cut versions plus the redelivery window; it moves in the same transaction as the first delete, and never back. A
crash anywhere leaves a stream that can be read, and truncating again finishes the work.

What is to be cut is planned and measured first (`truncation_plan`), so that a dry run tells exactly what a run does.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial

from eventstore import Partition, Stream, Table
from runtime.algorithms.state_based.old_letters import without_old_letters
from runtime.algorithms.state_based.truncation_plan import planned
from runtime.algorithms.state_based.truncation_rules import HeldBy, TruncationRules
from runtime.algorithms.state_based.unpublished import StoredOutputs
from runtime.retries import RetryPolicy, until_undisturbed
from runtime.storage.damage import placed
from runtime.storage.head import HEAD_PROPERTIES, Head, read_head
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
    stream, head, _ = await without_old_letters(stream, head, rules, dry_run=True)
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
    stream, head, abandoned = await without_old_letters(
        stream, head, rules, dry_run=dry_run, kept=letters_kept
    )
    gone, held = await _gone(runs, head, rules, StoredOutputs(stream, head.tail))
    if up_to is not None:
        gone = [run for run in gone if run.last <= up_to]
    head = _moved(head, gone, rules) if gone else head
    plan = await planned(stream, gone, head)
    if plan is not None and not dry_run:
        await plan.carry_out()
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
    return head._replace(
        kept_from=gone[-1].last + 1,
        horizon=max(horizons, default=None),
        undated_cut=head.undated_cut or any(run.undated for run in gone),
    )
