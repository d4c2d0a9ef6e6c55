"""Truncation: cut away old versions, and remember up to when their messages can no longer be recognised.

Whole runs go, and segments of the tail, from the oldest on. The horizon of a stream is the newest `enqueued_at` among
its cut versions plus the redelivery window; it moves in the same transaction as the first delete, and never back. A
crash anywhere leaves a stream that can be read, and truncating again finishes the work.

What is to be cut is planned and measured first, so that a dry run tells exactly what a run does.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import accumulate
from pathlib import Path
from typing import Any, ClassVar

from eventstore import Include, Partition, Row, Stream, Table
from eventstore.header import header_row
from eventstore.limits import prepare_row, row_bytes
from eventstore.writing import CutRows, rows_to_cut
from runtime.errors import UsageError
from runtime.ledger.batch import POSITION, OpenBatches
from runtime.messages.digests import NO_OUTPUTS
from runtime.options import option
from runtime.retries import RetryPolicy, until_undisturbed
from runtime.versions import dead_letters
from runtime.versions.dead_letters import Letter, Waiting, given_up
from runtime.versions.head import HEAD_PROPERTIES, NO_EVENT, Head, Tail, read_head
from runtime.versions.index import index_below
from runtime.versions.properties import error_location
from runtime.versions.run import (
    DATA_PROPERTIES,
    ID_PROPERTIES,
    INDEX_PROPERTIES,
    Commit,
    Run,
    RunIndex,
    RunVersions,
    Version,
    read_index,
    read_run,
)

DAY = 24 * 3600 * 1_000_000
MINIMUM_AGE = DAY


class HeldBy(StrEnum):
    """What keeps versions of a stream that are old enough, and more than the number to be kept."""

    HOLD = "hold"
    """A hold among the policies of the table: the stream is not looked at."""

    OPEN_BATCH = "open_batch"
    """Their batch is unpublished."""

    UNDATED = "undated"
    """They have no `enqueued_at`, and that is not allowed for."""

    UNACKNOWLEDGED = "unacknowledged"
    """They are of single messages with outputs, of which nobody has said that they are published."""

    LETTER = "letter"
    """A letter waits that is not newer: redriven after they are cut, its message would be too late."""

    STREAM_DAMAGED = "stream_damaged"
    """One of its rows cannot be read: nothing is cut of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionRules:
    """What may be cut, as policies say it too. Times are microseconds. A version goes only when every rule lets it."""

    GROUP: ClassVar = "truncate"

    older_than: int | None = option(
        "Cut versions older than 7d, 24h, 2w ...",
        default=None,
        parse="duration",
        metavar="AGE",
        is_rare=False,
    )
    keep_last: int | None = option(
        "Cut all but the newest N versions of each stream.", default=None, metavar="N", min=1, is_rare=False
    )
    redelivery_window: int = option(
        "How much later than its first copy a broker may stamp another one, for logs whose broker does; moves the "
        "horizon on by as much.",
        default=0,
        parse="duration",
        metavar="TIME",
    )
    allow_undated: bool = option(
        "Cut versions without enqueued_at too; every unknown message without one is too late there afterwards.",
        default=False,
    )
    acknowledged_after: int | None = option(
        "Promise that the queue has no single message any more that was handled longer ago: then its outputs are "
        "published, and its version may be cut.",
        default=None,
        parse="duration",
        metavar="AGE",
    )

    def as_of(self, now: int, open_batches: OpenBatches, *, allow_young: bool = False) -> TruncationRules:
        """Return the rules of a truncation that begins now.

        Raises `UsageError` when neither an age nor a number is given, or the age is below a day and not allowed to be.
        """
        age, window = self.older_than, self.redelivery_window
        if age is None and self.keep_last is None:
            raise UsageError("Say what may be cut: --older-than AGE, --keep-last N, or both.")
        if age is not None and age < MINIMUM_AGE and not allow_young:
            raise UsageError(
                "Versions younger than 24h are kept, as their messages may well be redelivered: give an "
                "--older-than of 24h or more, or add --allow-young."
            )
        if not 0 <= window <= 3650 * DAY:
            raise UsageError("A redelivery window is between nothing and ten years.")
        if age is None:
            age = 0 if allow_young else MINIMUM_AGE
        acknowledged = ago(now, self.acknowledged_after)
        return TruncationRules(
            now - age, self.keep_last or 0, window, self.allow_undated, open_batches, acknowledged
        )


def ago(now: int, age: int | None) -> int | None:
    """Return the time that is an age before now, None for no age."""
    return None if age is None else now - age


@dataclass(frozen=True, slots=True, kw_only=True)
class TruncationChoices(RetentionRules):
    """What one truncation cuts, and how it works."""

    allow_young: bool = option(
        "Cut versions younger than 24h too, whose messages may well be redelivered.", default=False
    )
    give_up_letters_older_than: int | None = option(
        "Give up letters that were refused longer ago, which hold their streams: they are never redriven.",
        default=None,
        parse="duration",
        metavar="AGE",
    )

    dry_run: bool = option("Write nothing, and say what would be cut.", default=False, group=None)
    take_over: bool = option(
        "Begin although the lease of another clean-up has not expired; that one stops.",
        default=False,
        group=None,
        is_rare=True,
    )
    max_requests_per_second: float | None = option(
        "All workers together make no more requests.", default=None, metavar="N", min=0.1
    )
    report: Path | None = option(
        "Write a row for each stream that is cut or held to this new folder, as Parquet.",
        default=None,
        metavar="DIR",
        group=None,
        is_rare=True,
    )
    export: Path | None = option(
        "Write versions and letters to files in this folder, and cut them once those were read back.",
        default=None,
        metavar="DIR",
        file_okay=False,
        is_rare=False,
    )

    @property
    def is_given(self) -> bool:
        """Whether anything is said of what may be cut, so that the policies of the table do not count."""
        flags = (self.redelivery_window, self.allow_undated, self.allow_young)
        return self.older_than is not None or self.keep_last is not None or any(flags)

    def as_of(self, now: int, open_batches: OpenBatches, *, allow_young: bool = False) -> TruncationRules:
        """Return the rules of a truncation that begins now. Raises `UsageError` for rules that make no sense."""
        rules = RetentionRules.as_of(self, now, open_batches, allow_young=allow_young or self.allow_young)
        return replace(rules, give_up=ago(now, self.give_up_letters_older_than))


@dataclass(frozen=True, slots=True)
class TruncationRules:
    """When a version may go. Times are microseconds.

    `cut_off` is the time before which both the version and its message must have been written and enqueued. `keep_last`
    versions stay whatever their age. Versions of `open_batches` stay, as their outputs may be unpublished, and so do
    those of single messages with outputs, unless their consumer has acknowledged them or they were written before
    `acknowledged`, as the operator promises. Versions without `enqueued_at` go only when `allow_undated`.

    The horizon stays before the oldest letter that waits. Letters last refused at `give_up` or before are given up.
    """

    cut_off: int
    keep_last: int
    redelivery_window: int
    allow_undated: bool
    open_batches: OpenBatches
    acknowledged: int | None = None
    give_up: int | None = None

    @classmethod
    def of(cls, now: int, open_batches: OpenBatches, **given: Any) -> TruncationRules:  # noqa: ANN401 - fields
        """Return the rules, given by the fields of `TruncationChoices`, of a truncation that begins now."""
        return TruncationChoices(**given).as_of(now, open_batches)

    def is_due(self, run: RunIndex, versions: int) -> bool:
        """Return whether all versions of a run are old enough, and more than those to be kept."""
        return (
            run.last <= versions - self.keep_last
            and run.written_at < self.cut_off
            and (run.newest is None or run.newest < self.cut_off)
        )

    def holder(self, run: RunIndex) -> HeldBy | None:
        """Return what keeps a run that is due, None when it may go.

        Versions that are unacknowledged may go all the same, when they have no outputs.
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
        """Return whether a letter that waits would be too late without a run, and could not be redriven."""
        if run.undated and waiting.undated:
            return True
        if run.newest is None or waiting.oldest is None:
            return False
        return run.newest + self.redelivery_window >= waiting.oldest

    def is_acknowledged(self, commit: Commit) -> bool:
        """Return whether somebody vouches for the outputs of a commit: a batch, a consumer, or the operator."""
        if commit.batch is not None and not commit.batch.startswith(POSITION):
            return True
        if commit.number is not None and self.open_batches.is_finished(None, commit.number):
            return True
        return self.acknowledged is not None and commit.written_at < self.acknowledged


async def take_letters(
    table: Table, key: str, rules: TruncationRules, retries: RetryPolicy, take: Callable[[Letter], None]
) -> frozenset[int]:
    """Pass the letters of one stream that the rules give up to `take`, and return their numbers.

    A letter may be passed several times. Costs nothing when letters are not given up, else a request for each stream,
    and one more where letters wait.
    """
    latest = rules.give_up
    if latest is None:
        return frozenset()

    async def take_old() -> frozenset[int]:
        stream = await Stream.try_open(Partition.exact(table, key))
        if stream is None or not dead_letters.read_waiting(stream.properties or {}).count:
            return frozenset()
        waiting = (await dead_letters.letters_of(stream.partition)).waiting
        old = [letter for letter in waiting if letter.refused_at <= latest]
        for letter in old:
            take(letter)
        return frozenset(letter.number for letter in old)

    with error_location(table, key):
        return await until_undisturbed(retries.beside(table), take_old)


async def without_old_letters(
    stream: Stream, head: Head, rules: TruncationRules, *, dry_run: bool, kept: Collection[int] | None = None
) -> tuple[Stream, Head, int]:
    """Give up the letters that were refused long ago. Return the stream and its head after it, and how many.

    They would hold the horizon for ever. Costs a query for a stream with letters, and a transaction when some are given
    up.
    """
    latest = rules.give_up
    if latest is None or not head.waiting.count:
        return stream, head, 0
    before = await dead_letters.letters_of(stream.partition)
    changed, count = given_up(
        before.all, lambda letter: letter.refused_at <= latest and (kept is None or letter.number in kept)
    )
    if not count:
        return stream, head, 0
    head = head._replace(waiting=head.waiting.after(changed, 0))
    if dry_run:
        return replace(stream, properties=head.properties()), head, count
    _, changes = before.changed(changed)
    return await Stream.set_properties(stream, head.properties(), changes), head, count


@dataclass(frozen=True, slots=True)
class Plan:
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

    async def carry_out(self) -> None:
        """Cut it. A transaction for each 99 rows. Raises `ConcurrencyConflictError`."""
        properties = self.head.properties() if self.head else None
        changes = [Include.delete(row.row_key, "*") for row in self.index]
        await Stream.truncate(self.stream, self.first_event, properties, changes, self.rows)


async def planned(stream: Stream, gone: Sequence[RunIndex], head: Head) -> Plan | None:
    """Return what is to be cut when these runs go, the oldest of a stream: events, and segments of the tail."""
    if not gone:
        if stream.first_version == 1:
            return None
        rows = await rows_to_cut(stream, stream.first_version)
        return Plan(stream, stream.first_version, rows) if rows.row_keys else None
    if head.tail is not None and head.tail.first < head.kept_from:
        head = head._replace(tail=head.tail.from_version(head.kept_from))
    # A segment of the tail has the event 0.
    first_event = max(stream.first_version, *(run.event + 1 for run in gone))
    index = await index_below(stream.partition, head.kept_from)
    return Plan(stream, first_event, await rows_to_cut(stream, first_event), index, head)


@dataclass(slots=True)
class StoredOutputs:
    """Tells which versions of a stream have outputs, by the digests of these.

    Outputs of single messages may be unpublished, because their worker died after the append. The queue redelivers such
    a message, and its copy is replayed on the version before its own. So versions of single messages go only when they
    have no outputs, or when their consumer or the operator says that these are published.
    """

    stream: Stream
    tail: Tail | None
    _tail_as_run: Run | None = field(default=None, init=False)

    async def of(self, run: RunIndex, is_acknowledged: Callable[[Commit], bool]) -> bool:
        """Say whether versions in a run, other than those of acknowledged commits, have outputs.

        Costs one request, none for the tail.
        """
        read = await self._read(run)
        digests = read.versions.outputs_digests
        starts = accumulate((commit.length for commit in run.commits), initial=run.first - read.first)
        return any(
            digest != NO_OUTPUTS
            for commit, start in zip(run.commits, starts, strict=False)
            if not is_acknowledged(commit)
            for digest in digests[start : start + commit.length]
        )

    async def _read(self, run: RunIndex) -> Run:
        """Return a run with its versions; for a segment of the tail, the whole tail."""
        if run.event == NO_EVENT and self.tail is not None:
            self._tail_as_run = self._tail_as_run or self.tail.run()
            return self._tail_as_run
        select = [*INDEX_PROPERTIES, *ID_PROPERTIES, *DATA_PROPERTIES]
        (event,) = await Stream.read_events(self.stream, run.event, run.event, select=select)
        return read_run(event)


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

    async def take_old() -> int:
        found = await _read(Partition.exact(table, key))
        if found is None:
            return 0
        stream, head, runs = found
        stream, head, _ = await without_old_letters(stream, head, rules, dry_run=True)
        gone, _ = await _gone(runs, head, rules, StoredOutputs(stream, head.tail))
        last = gone[-1].last if gone else 0
        for run in gone:
            if run.event != NO_EVENT:
                (event,) = await Stream.read_events(stream, run.event, run.event)
                for version in RunVersions(read_run(event)):
                    take(version)
        if head.tail is not None and head.tail.first <= last:
            for version in RunVersions(head.tail.run()):
                if version.number <= last:
                    take(version)
        return last

    with error_location(table, key):
        return await until_undisturbed(retries.beside(table), take_old)


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

    async def attempt() -> Truncated | None:
        found = await _read(Partition.exact(table, key))
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
        count, (rows, size) = sum(run.count for run in gone), (plan.count, plan.bytes) if plan else (0, 0)
        cut = Truncated(key, count, len(gone), head.kept_from, head.versions, head.horizon)
        return replace(cut, rows=rows, bytes=size, held=held, letters=abandoned)

    with error_location(table, key):
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
    undated_cut = head.undated_cut or any(run.undated for run in gone)
    return head._replace(
        kept_from=gone[-1].last + 1, horizon=max(horizons, default=None), undated_cut=undated_cut
    )
