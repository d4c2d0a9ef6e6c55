"""Delete old versions of a stream, and record the horizon up to which duplicates can no longer be recognised.

Whole runs and segments of the tail are deleted, oldest first. The horizon is the latest `enqueued_at` of a deleted
version plus the redelivery window. It moves in the same transaction as the first delete, and never back. So a crash
leaves a readable stream, and the next truncation finishes the work. The plan is measured first, which makes dry runs
exact.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import accumulate
from pathlib import Path
from typing import ClassVar

from eventstore import Include, Partition, Row, Stream, Table
from eventstore.header import header_row
from eventstore.limits import prepare_row, row_bytes
from eventstore.writing import CutRows, rows_to_cut
from runtime.errors import UsageError
from runtime.ledger.batch import POSITION, OpenBatches
from runtime.messages.envelope import NO_OUTPUTS
from runtime.options import flag, option
from runtime.retries import RetryPolicy, until_undisturbed
from runtime.versions import dead_letter_rows
from runtime.versions.dead_letter_rows import Letter, Waiting, given_up
from runtime.versions.head import HEAD_PROPERTIES, NO_EVENT, Head, read_head
from runtime.versions.index import index_below
from runtime.versions.properties import error_location
from runtime.versions.run import INDEX_PROPERTIES, Commit, Run, RunIndex, Version, read_index, read_run

DAY = 24 * 3600 * 1_000_000
MINIMUM_AGE = DAY


class HeldBy(StrEnum):
    """The reasons why versions are kept although their age and number allow their deletion."""

    HOLD = "hold"  # a policy holds the stream, which is not even read
    OPEN_BATCH = "open_batch"  # their batch is unpublished
    UNDATED = "undated"  # their messages have no `enqueued_at`, and `allow_undated` is not set
    UNACKNOWLEDGED = "unacknowledged"  # outputs of single messages may be unpublished
    LETTER = "letter"  # a waiting dead letter is not newer, and its redrive would be too late
    STREAM_DAMAGED = "stream_damaged"  # a row is corrupt, and nothing is deleted


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionRules:
    """The retention rules of a truncation or a policy. A version is deleted only if all of them allow it.

    Ages are in microseconds.
    """

    GROUP: ClassVar = "truncate"

    older_than: int | None = option(
        "Delete versions older than 7d, 24h, 2w ...", parse="duration", is_rare=False
    )
    keep_last: int | None = option("Keep the newest N versions of each stream.", min=1, is_rare=False)
    redelivery_window: int = option(
        "Extend the horizon by this time, if the broker gives a redelivery a newer enqueued_at.",
        default=0,
        parse="duration",
        metavar="TIME",
    )
    allow_undated: bool = flag(
        "Also delete versions without enqueued_at. Afterwards, unknown messages without it are too_late."
    )
    acknowledged_after: int | None = option(
        "Assert that single messages handled longer ago were acknowledged, so that their versions may be cut.",
        parse="duration",
    )

    def as_of(self, now: int, open_batches: OpenBatches, *, allow_young: bool = False) -> TruncationRules:
        """Return the rules for a truncation that begins at `now`. Raises `UsageError` for invalid rules."""
        age, window = self.older_than, self.redelivery_window
        if age is None and self.keep_last is None:
            raise UsageError("Specify the versions to delete: --older-than AGE, --keep-last N, or both.")
        if age is not None and age < MINIMUM_AGE and not allow_young:
            raise UsageError(
                "Versions younger than 24h are kept, because their messages may be redelivered: use --older-than with "
                "24h or more, or add --allow-young."
            )
        if not 0 <= window <= 3650 * DAY:
            raise UsageError("The redelivery window must be between 0 and ten years.")
        if age is None:
            age = 0 if allow_young else MINIMUM_AGE
        options = (self.keep_last or 0, window, self.allow_undated)
        return TruncationRules(now - age, *options, open_batches, ago(now, self.acknowledged_after))


def ago(now: int, age: int | None) -> int | None:
    return None if age is None else now - age


@dataclass(frozen=True, slots=True, kw_only=True)
class TruncationChoices(RetentionRules):
    """The options of one truncation."""

    allow_young: bool = flag(
        "Also delete versions younger than 24h, whose messages may still be redelivered."
    )
    give_up_letters_older_than: int | None = option(
        "Discard dead letters rejected longer ago, which prevent truncation. They can never be redriven.",
        parse="duration",
    )

    dry_run: bool = flag("Write nothing, and show the versions that would be cut.", group=None)
    take_over: bool = flag(
        "Take over the lease of another clean-up, which then stops.", group=None, is_rare=True
    )
    max_requests_per_second: float | None = option("Limit the requests of all workers together.", min=0.1)
    report: Path | None = option(
        "Write a row for each stream cut or held to this new folder, as Parquet.",
        metavar="DIR",
        group=None,
        is_rare=True,
    )
    export: Path | None = option(
        "Export versions and letters to this folder, and cut them once the files were verified.",
        file_okay=False,
        is_rare=False,
    )

    @property
    def is_given(self) -> bool:
        """Whether any retention rule is set. If so, the policies of the table do not apply."""
        flags = (self.redelivery_window, self.allow_undated, self.allow_young)
        return self.older_than is not None or self.keep_last is not None or any(flags)

    def as_of(self, now: int, open_batches: OpenBatches, *, allow_young: bool = False) -> TruncationRules:
        """Return the rules for a truncation that begins at `now`. Raises `UsageError` for invalid rules."""
        rules = RetentionRules.as_of(self, now, open_batches, allow_young=allow_young or self.allow_young)
        return replace(rules, give_up=ago(now, self.give_up_letters_older_than))


@dataclass(frozen=True, slots=True)
class TruncationRules:
    """The rules that decide when a version may be deleted. Times are in microseconds, and dates count from 1970 UTC."""

    cut_off: int  # versions must be written, and their messages enqueued, before this time
    keep_last: int  # the minimum number of versions, whatever their age
    redelivery_window: int
    allow_undated: bool  # include versions without `enqueued_at`
    open_batches: OpenBatches  # their versions are kept, as the outputs may be unpublished
    acknowledged: int | None = None  # the outputs of single messages handled before this time are published
    give_up: int | None = None  # dead letters rejected up to this time are discarded

    def is_due(self, run: RunIndex, versions: int) -> bool:
        """Return whether all versions of a run are old enough, and not among the last `keep_last` of `versions`."""
        return (
            run.last <= versions - self.keep_last
            and run.written_at < self.cut_off
            and (run.newest is None or run.newest < self.cut_off)
        )

    def holder(self, run: RunIndex) -> HeldBy | None:
        """Return why a due run is kept, or `None` if it may be deleted.

        The caller must ignore `UNACKNOWLEDGED` for a run without outputs.
        """
        if not all(
            each.batch is None or self.open_batches.is_finished(each.batch, each.number)
            for each in run.commits
        ):
            return HeldBy.OPEN_BATCH
        if run.undated and not self.allow_undated:
            return HeldBy.UNDATED
        if not all(map(self.is_acknowledged, run.commits)):
            return HeldBy.UNACKNOWLEDGED
        return None

    def is_held_by_letter(self, run: RunIndex, waiting: Waiting) -> bool:
        """Return whether deleting a run would move the horizon to, or past, the time of a waiting dead letter."""
        if run.undated and waiting.undated:
            return True
        if run.newest is None or waiting.oldest is None:
            return False
        return run.newest + self.redelivery_window >= waiting.oldest

    def is_acknowledged(self, commit: Commit) -> bool:
        """Return whether a batch, a consumer or the operator confirms that the outputs of a commit are published."""
        if commit.batch is not None and not commit.batch.startswith(POSITION):
            return True
        if commit.number is not None and self.open_batches.is_finished(None, commit.number):
            return True
        return self.acknowledged is not None and commit.written_at < self.acknowledged


async def _without_old_letters(
    stream: Stream, head: Head, rules: TruncationRules, among: Collection[int] | None = None
) -> tuple[Head, Sequence[Letter], Sequence[Include]]:
    """Plan to discard old dead letters, which prevent truncation. Return the new head, these letters, and row changes.

    Of many rows of letters, takes a portion. Writes nothing: the caller stores the changes. `among`: the numbers of the
    letters that may be discarded, or `None` for all. Costs at most one request.
    """
    latest = rules.give_up
    if latest is None or not head.waiting.count:
        return head, (), ()
    letters = await dead_letter_rows.letters_of(stream.partition)
    changed, old = given_up(
        letters, lambda each: each.refused_at <= latest and (among is None or each.number in among)
    )
    if not old:
        return head, (), ()
    head = head._replace(waiting=head.waiting.after(changed))
    return head, old, letters.changed(changed)[1]


@dataclass(frozen=True, slots=True)
class Plan:
    """The rows to delete, and the new head. Without `head`, only leftovers of an interrupted truncation are deleted."""

    stream: Stream
    first_event: int  # older events are deleted
    rows: CutRows
    index: Sequence[Row] = ()
    head: Head | None = None

    @property
    def count(self) -> int:
        return len(self.rows.row_keys) + len(self.index)

    @property
    def bytes(self) -> int:
        size = self.rows.bytes + sum(map(row_bytes, self.index))
        if self.head is None:
            return size
        version = self.stream.version
        before = header_row(version, self.stream.first_version, self.stream.properties or {})
        after = header_row(version, self.first_event, self.head.properties())
        return size + prepare_row(before)[1] - prepare_row(after)[1]

    async def carry_out(self) -> None:
        """Delete the rows, 99 per transaction. Raises `ConcurrencyConflictError` if the stream has changed."""
        properties = self.head.properties() if self.head else None
        changes = [Include.delete(row.row_key, "*") for row in self.index]
        await Stream.truncate(self.stream, self.first_event, properties, changes, self.rows)


async def planned(stream: Stream, gone: Sequence[RunIndex], head: Head) -> Plan | None:
    """Plan the deletion of `gone`, the oldest runs of a stream. Return `None` if there is nothing to delete."""
    if not gone:
        if stream.first_version == 1:
            return None
        rows = await rows_to_cut(stream, stream.first_version)
        return Plan(stream, stream.first_version, rows) if rows.row_keys else None
    if head.tail is not None and head.tail.first < head.kept_from:
        head = head._replace(tail=head.tail.from_version(head.kept_from))
    # The segments of the tail have the event number 0.
    first_event = max(stream.first_version, *(run.event + 1 for run in gone))
    index = await index_below(stream.partition, head.kept_from)
    return Plan(stream, first_event, await rows_to_cut(stream, first_event), index, head)


@dataclass(frozen=True, slots=True)
class Truncated:
    """The result of truncating a stream, or of a dry run."""

    stream: str
    versions: int
    runs: int
    kept_from: int
    newest: int
    horizon: int | None
    rows: int = 0
    bytes: int = 0  # by which the table shrinks, including tails in headers
    held: HeldBy | None = None  # why the next run is kept
    letters: int = 0  # discarded dead letters


async def take_old(
    table: Table,
    key: str,
    rules: TruncationRules,
    retries: RetryPolicy,
    take_version: Callable[[Version], None],
    *,
    take_letter: Callable[[Letter], object] = lambda _: None,
) -> tuple[int, frozenset[int]]:
    """Call `take_version` with each version to delete, and `take_letter` with each dead letter to discard.

    Deletes nothing. A retry may pass versions and dead letters again. Return the number of the last version to delete,
    or 0 if there is none, and the numbers of the dead letters to discard.
    """

    async def attempt() -> tuple[int, frozenset[int]]:
        found = await read_runs(Partition.exact(table, key))
        if found is None:
            return 0, frozenset()
        stream, head, runs = found
        head, letters, _ = await _without_old_letters(stream, head, rules)
        gone, _ = await _gone(stream, head, runs, rules)
        last = gone[-1].last if gone else 0
        for run in gone:
            if run.event != NO_EVENT:
                (event,) = await Stream.read_events(stream, run.event, run.event)
                for version in read_run(event).all():
                    take_version(version)
        if head.tail is not None and head.tail.first <= last:
            for version in head.tail.run().all():
                if version.number <= last:
                    take_version(version)
        for letter in letters:
            take_letter(letter)
        return last, frozenset(letter.number for letter in letters)

    with error_location(table, key):
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
    """Delete the versions of one stream that the rules allow. Return `None` if the stream no longer exists.

    `up_to`: the number of the last exported version. Later versions are kept. `letters_kept`: the numbers of the
    exported dead letters. Other dead letters are kept. Costs a transaction for every 99 rows.
    """
    # The new `kept_from`, versions, runs, rows and bytes of attempts that took effect, perhaps without an answer.
    done: list[tuple[int, ...]] = []
    discarded: set[int] = set()

    async def attempt() -> Truncated | None:
        found = await read_runs(Partition.exact(table, key))
        if found is None:
            return None
        stream, head, runs = found
        done[:] = [each for each in done if each[0] <= head.kept_from]
        head, letters, changes = await _without_old_letters(stream, head, rules, letters_kept)
        discarded.update(letter.number for letter in letters)
        if letters and dry_run:
            stream = replace(stream, properties=head.properties())
        elif letters:
            stream = await Stream.set_properties(stream, head.properties(), changes)
        gone, held = await _gone(stream, head, runs, rules)
        if up_to is not None:
            gone = [run for run in gone if run.last <= up_to]
        head = _moved(head, gone, rules) if gone else head
        plan = await planned(stream, gone, head)
        # Leftovers of an earlier attempt are counted already.
        sizes = (0, 0) if plan is None or (done and not gone) else (plan.count, plan.bytes)
        done.append((head.kept_from, sum(run.count for run in gone), len(gone), *sizes))
        if plan is not None and not dry_run:
            await plan.carry_out()
        kept_from, newest, horizon = head.kept_from, head.versions, head.horizon
        _, versions, cut, rows, size = map(sum, zip(*done, strict=True))
        return Truncated(key, versions, cut, kept_from, newest, horizon, rows, size, held, len(discarded))

    with error_location(table, key):
        return await until_undisturbed(retries.beside(table), attempt)


async def read_runs(partition: Partition) -> tuple[Stream, Head, list[RunIndex]] | None:
    """Return a stream, its head, and its runs followed by the segments of its tail, or `None` if it does not exist."""
    read = await Stream.try_read(partition, slice_size=None, select=INDEX_PROPERTIES, header=HEAD_PROPERTIES)
    if read is None:
        return None
    head = read_head(read.stream.properties or {})
    runs = [read_index(event) for event in read.events]
    return read.stream, head, runs + (head.tail.indexes() if head.tail else [])


async def _gone(
    stream: Stream, head: Head, runs: Sequence[RunIndex], rules: TruncationRules
) -> tuple[list[RunIndex], HeldBy | None]:
    """Return the oldest runs that may be deleted, and why the next run is kept. The newest run is never deleted."""
    gone: list[RunIndex] = []
    tail: Run | None = None
    for run in runs[:-1]:
        if not rules.is_due(run, head.versions):
            break
        held = rules.holder(run)
        if held in (None, HeldBy.UNACKNOWLEDGED) and rules.is_held_by_letter(run, head.waiting):
            held = HeldBy.LETTER
        if held is HeldBy.UNACKNOWLEDGED:
            if run.event == NO_EVENT and head.tail is not None:
                read = tail = tail or head.tail.run()
            else:
                (event,) = await Stream.read_events(stream, run.event, run.event)
                read = read_run(event)
            held = held if _has_outputs(read, run, rules) else None
        if held is not None:
            return gone, held
        gone.append(run)
    return gone, None


def _has_outputs(read: Run, run: RunIndex, rules: TruncationRules) -> bool:
    """Return whether a version of a run has outputs that may be unpublished, and that a replay would then publish."""
    digests = read.versions.outputs_digests
    starts = accumulate((commit.length for commit in run.commits), initial=run.first - read.first)
    return any(
        digest != NO_OUTPUTS
        for commit, start in zip(run.commits, starts, strict=False)
        if not rules.is_acknowledged(commit)
        for digest in digests[start : start + commit.length]
    )


def _moved(head: Head, gone: Sequence[RunIndex], rules: TruncationRules) -> Head:
    dated = [run.newest for run in gone if run.newest is not None]
    horizons = [newest + rules.redelivery_window for newest in dated]
    if head.horizon is not None:
        horizons.append(head.horizon)
    undated_cut, kept_from = head.undated_cut or any(run.undated for run in gone), gone[-1].last + 1
    return head._replace(kept_from=kept_from, horizon=max(horizons, default=None), undated_cut=undated_cut)
