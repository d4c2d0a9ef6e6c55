"""Truncation: cut away old versions, and remember up to when their messages can no longer be recognised.

Whole runs go, and segments of the tail, from the oldest on. The horizon of a stream is the newest `enqueued_at` among
its cut versions plus
the redelivery window; it moves in the same transaction as the first delete, and never back. A crash anywhere
leaves a stream that can be read, and truncating again finishes the work.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from eventstore import Partition, Stream, Table
from runtime.batches.open_batches import OpenBatches
from runtime.errors import UsageError
from runtime.retries import RetryPolicy, until_undisturbed
from runtime.storage.head import HEAD_PROPERTIES, Head, read_head
from runtime.storage.id_index import drop_index
from runtime.storage.run import INDEX_PROPERTIES, RunIndex, read_index
from runtime.storage.tail import NO_EVENT

DAY = 24 * 3600 * 1_000_000
MINIMUM_AGE = DAY
_LONGEST_WINDOW = 3650 * DAY


@dataclass(frozen=True, slots=True)
class TruncationRules:
    """When a version may go. Times are microseconds.

    `cut_off` is the time before which both the version and its message must have been written and enqueued.
    `keep_last` versions stay whatever their age. Versions of `open_batches` stay, as their outputs may not be out
    yet. Versions without `enqueued_at` go only when `allow_undated`.
    """

    cut_off: int
    keep_last: int
    redelivery_window: int
    allow_undated: bool
    open_batches: OpenBatches

    @classmethod
    def of(
        cls,
        now: int,
        open_batches: OpenBatches,
        *,
        older_than: int | None = None,
        keep_last: int | None = None,
        redelivery_window: int = 0,
        allow_undated: bool = False,
        allow_young: bool = False,
    ) -> TruncationRules:
        """Make the rules of a truncation that begins `now`.

        Raises `UsageError` when neither an age nor a number is given, or the age is below a day and not
        allowed to be.
        """
        if older_than is None and keep_last is None:
            message = "Say what may be cut: --older-than AGE, --keep-last N, or both."
            raise UsageError(message)
        if older_than is not None and older_than < MINIMUM_AGE and not allow_young:
            message = (
                "Versions younger than 24h are kept, as their messages may well be delivered again: give an "
                "--older-than of 24h or more, or add --allow-young."
            )
            raise UsageError(message)
        if not 0 <= redelivery_window <= _LONGEST_WINDOW:
            message = "A redelivery window is between nothing and ten years."
            raise UsageError(message)
        age = older_than if older_than is not None else (0 if allow_young else MINIMUM_AGE)
        return cls(now - age, keep_last or 0, redelivery_window, allow_undated, open_batches)

    def lets_go(self, run: RunIndex, versions: int) -> bool:
        """Say whether all versions of a run may go, in a stream that has made so many versions."""
        return (
            run.last <= versions - self.keep_last
            and all(self.open_batches.is_finished(commit.batch, commit.number) for commit in run.commits)
            and run.written_at < self.cut_off
            and (run.newest is None or run.newest < self.cut_off)
            and (self.allow_undated or not run.undated)
        )


@dataclass(frozen=True, slots=True)
class Truncated:
    """What was cut of a stream, or would be: versions and runs, and what is kept."""

    stream: str
    versions: int
    runs: int
    kept_from: int
    newest: int
    horizon: int | None


async def truncate_stream(
    table: Table, key: str, rules: TruncationRules, retries: RetryPolicy, *, dry_run: bool = False
) -> Truncated | None:
    """Cut away what the rules let go of one stream, by its partition key. Return None when it is gone.

    Costs one query; two more for a stream that is or was cut, to find the rows, also those that an earlier
    truncation may have left; and one transaction for each 99 rows. Raises `RetriesExhaustedError` after too many
    lost races in a row.
    """
    attempt = partial(_truncate_once, Partition.exact(table, key), rules, dry_run=dry_run)
    return await until_undisturbed(retries.beside(table), attempt)


async def _truncate_once(partition: Partition, rules: TruncationRules, *, dry_run: bool) -> Truncated | None:
    slice_ = await Stream.try_read(
        partition, slice_size=None, select=INDEX_PROPERTIES, header=HEAD_PROPERTIES
    )
    if slice_ is None:
        return None
    stream = slice_.stream
    head = read_head(stream.properties or {})
    runs = [read_index(event) for event in slice_.events]
    runs += head.tail.indexes() if head.tail else []
    gone = _gone(runs, head, rules)
    if gone:
        head = _moved(head, gone, rules)
    if gone and not dry_run:
        await _cut(stream, gone, head)
    elif stream.first_version > 1 and not dry_run:
        await Stream.truncate(stream, stream.first_version)  # what a crash may have left below the watermark
    versions = sum(run.count for run in gone)
    return Truncated(partition.key, versions, len(gone), head.kept_from, head.versions, head.horizon)


async def _cut(stream: Stream, gone: Sequence[RunIndex], head: Head) -> None:
    """Cut runs away, the oldest of a stream: events, and segments of the tail."""
    if head.tail is not None and head.tail.first < head.kept_from:
        head = replace(head, tail=head.tail.from_version(head.kept_from))
    first_event = (
        max([run.event for run in gone if run.event != NO_EVENT], default=stream.first_version - 1) + 1
    )
    changes = await drop_index(stream.partition, head.kept_from)
    await Stream.truncate(stream, first_event, head.properties(), changes)


def _gone(runs: Sequence[RunIndex], head: Head, rules: TruncationRules) -> list[RunIndex]:
    """Return the runs to cut: the oldest ones that may go, never the newest run."""
    gone = []
    for run in runs[:-1]:
        if not rules.lets_go(run, head.versions):
            break
        gone.append(run)
    return gone


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
