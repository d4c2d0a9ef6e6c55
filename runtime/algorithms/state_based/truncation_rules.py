"""The rules of truncation: which versions of a stream may go, and what keeps them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from runtime.batches.open_batches import OpenBatches
from runtime.errors import UsageError
from runtime.storage.letters import Waiting
from runtime.storage.run import Commit, RunIndex

DAY = 24 * 3600 * 1_000_000
MINIMUM_AGE = DAY
_LONGEST_WINDOW = 3650 * DAY


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


def option(text: str, **details: object) -> Mapping[str, Any]:
    """Return the metadata of a field that the command line takes too: one line of help, and details of the option.

    The details are a `metavar`, a `min`, and `parse="duration"` for microseconds.
    """
    return {"help": text, **details}


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRules:
    """What may be cut, as policies say it too. Times are microseconds. A version goes only when every rule lets it."""

    older_than: int | None = field(
        default=None,
        metadata=option("Cut versions older than 7d, 24h, 2w ...", parse="duration", metavar="AGE"),
    )
    keep_last: int | None = field(
        default=None, metadata=option("Cut all but the newest N versions of each stream.", metavar="N", min=1)
    )
    redelivery_window: int = field(
        default=0,
        metadata=option(
            "How much later than its first copy a broker may stamp another one, for logs whose broker does; moves the "
            "horizon on by as much.",
            parse="duration",
            metavar="TIME",
        ),
    )
    allow_undated: bool = field(
        default=False,
        metadata=option(
            "Cut versions without enqueued_at too; every unknown message without one is too late there afterwards."
        ),
    )
    acknowledged_after: int | None = field(
        default=None,
        metadata=option(
            "Promise that the queue has no single message any more that was handled longer ago: then its outputs are "
            "published, and its version may be cut.",
            parse="duration",
            metavar="AGE",
        ),
    )

    def as_of(self, now: int, open_batches: OpenBatches) -> TruncationRules:
        """Return the rules of a truncation that begins now.

        Raises `UsageError` when neither an age nor a number is given, or the age is below a day and not allowed to be.
        """
        return self._as_of(now, open_batches)

    def _as_of(
        self, now: int, open_batches: OpenBatches, *, allow_young: bool = False, give_up: int | None = None
    ) -> TruncationRules:
        age, window = self.older_than, self.redelivery_window
        if age is None and self.keep_last is None:
            raise UsageError("Say what may be cut: --older-than AGE, --keep-last N, or both.")
        if age is not None and age < MINIMUM_AGE and not allow_young:
            raise UsageError(
                "Versions younger than 24h are kept, as their messages may well be redelivered: give an "
                "--older-than of 24h or more, or add --allow-young."
            )
        if not 0 <= window <= _LONGEST_WINDOW:
            raise UsageError("A redelivery window is between nothing and ten years.")
        if age is None:
            age = 0 if allow_young else MINIMUM_AGE
        return TruncationRules(
            now - age,
            self.keep_last or 0,
            window,
            self.allow_undated,
            open_batches,
            ago(now, self.acknowledged_after),
            give_up,
        )


def ago(now: int, age: int | None) -> int | None:
    """Return the time that is an age before now, None for no age."""
    return None if age is None else now - age


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenRules(PolicyRules):
    """What may be cut by one truncation."""

    allow_young: bool = field(
        default=False,
        metadata=option("Cut versions younger than 24h too, whose messages may well be redelivered."),
    )
    give_up_letters_older_than: int | None = field(
        default=None,
        metadata=option(
            "Give up letters that were refused longer ago, which hold their streams: they are never redriven.",
            parse="duration",
            metavar="AGE",
        ),
    )

    @property
    def is_given(self) -> bool:
        """Whether anything is said of what may be cut, so that the policies of the table do not count."""
        flags = (self.redelivery_window, self.allow_undated, self.allow_young)
        return self.older_than is not None or self.keep_last is not None or any(flags)

    def as_of(self, now: int, open_batches: OpenBatches) -> TruncationRules:
        """Return the rules of a truncation that begins now. Raises `UsageError` for rules that make no sense."""
        give_up = ago(now, self.give_up_letters_older_than)
        return self._as_of(now, open_batches, allow_young=self.allow_young, give_up=give_up)


@dataclass(frozen=True, slots=True, kw_only=True)
class TruncationChoices(GivenRules):
    """What one truncation cuts, and how it works."""

    dry_run: bool = field(default=False, metadata=option("Write nothing, and say what would be cut."))
    take_over: bool = field(
        default=False,
        metadata=option("Begin although the lease of another clean-up has not expired; that one stops."),
    )
    max_requests_per_second: float | None = field(
        default=None, metadata=option("All workers together make no more requests.", metavar="N", min=0.1)
    )
    report: Path | None = field(
        default=None,
        metadata=option(
            "Write a row for each stream that is cut or held to this new folder, as Parquet.", metavar="DIR"
        ),
    )
    export: Path | None = field(
        default=None,
        metadata=option(
            "Write versions and letters to files in this folder, and cut them once those were read back.",
            metavar="DIR",
            file_okay=False,
        ),
    )


@dataclass(frozen=True, slots=True)
class TruncationRules:
    """When a version may go. Times are microseconds.

    `cut_off` is the time before which both the version and its message must have been written and enqueued.
    `keep_last` versions stay whatever their age. Versions of `open_batches` stay, as their outputs may be unpublished,
    and so do those of single messages with outputs, unless their consumer has acknowledged them or they were written
    before `acknowledged`, as the operator promises. Versions without `enqueued_at` go only when `allow_undated`.

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
        """Return the rules, given by the fields of `GivenRules`, of a truncation that begins now."""
        return GivenRules(**given).as_of(now, open_batches)

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
            commit.batch is None or self.open_batches.is_finished(commit.batch, commit.number)
            for commit in run.commits
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
        if commit.batch is not None:
            return True
        if commit.number is not None and self.open_batches.is_finished(None, commit.number):
            return True
        return self.acknowledged is not None and commit.written_at < self.acknowledged
