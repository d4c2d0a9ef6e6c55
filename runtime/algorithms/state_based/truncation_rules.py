"""The rules of truncation: which versions of a stream may go, and what keeps them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

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
        acknowledged_after: int | None = None,
        give_up_letters_older_than: int | None = None,
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
                "Versions younger than 24h are kept, as their messages may well be redelivered: give an "
                "--older-than of 24h or more, or add --allow-young."
            )
            raise UsageError(message)
        if not 0 <= redelivery_window <= _LONGEST_WINDOW:
            message = "A redelivery window is between nothing and ten years."
            raise UsageError(message)
        age = older_than if older_than is not None else (0 if allow_young else MINIMUM_AGE)
        acknowledged = None if acknowledged_after is None else now - acknowledged_after
        give_up = None if give_up_letters_older_than is None else now - give_up_letters_older_than
        return cls(
            now - age, keep_last or 0, redelivery_window, allow_undated, open_batches, acknowledged, give_up
        )

    def is_due(self, run: RunIndex, versions: int) -> bool:
        """Say whether all versions of a run are old enough, and more than those to be kept."""
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
        """Say whether a letter that waits would be too late without a run, and could not be redriven."""
        if run.undated and waiting.undated:
            return True
        if run.newest is None or waiting.oldest is None:
            return False
        return run.newest + self.redelivery_window >= waiting.oldest

    def is_acknowledged(self, commit: Commit) -> bool:
        """Say whether somebody vouches for the outputs of a commit: a batch, a consumer, or the operator."""
        if commit.batch is not None:
            return True
        if commit.number is not None and self.open_batches.is_finished(None, commit.number):
            return True
        return self.acknowledged is not None and commit.written_at < self.acknowledged
