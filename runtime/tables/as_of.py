"""Time travel: which version of a stream was the newest at a time, or after a batch."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from eventstore import Table
from runtime.batches.ledger import Ledger
from runtime.batches.record import BatchRecord
from runtime.clock import system_clock, to_microseconds
from runtime.storage.head import Head
from runtime.storage.run import Commit, Run


@dataclass(frozen=True, slots=True)
class AsOfTime:
    """A time in microseconds since 1970 UTC: versions that were made until then were there."""

    moment: int

    def has_newest(self, head: Head) -> bool:
        """Return whether the newest version was made until then."""
        return head.last_now <= self.moment

    def last(self, run: Run) -> int | None:
        """Return the position of the last version that was made until then."""
        count = bisect_right(run.versions.nows, self.moment)
        return count - 1 if count else None

    def has_time(self, moment: int) -> bool:
        """Return whether a time was past, or was this one."""
        return moment <= self.moment


@dataclass(frozen=True, slots=True)
class AsOfBatch:
    """The end of a batch: the versions up to the last one that it, or one that began before it, has made were there.

    Of a version whose batch has no number the time counts at which it was written.
    """

    name: str
    number: int | None
    ended: int

    @classmethod
    def of(cls, record: BatchRecord) -> AsOfBatch:
        """Return the end of a batch that the ledger has."""
        return cls(record.batch_id, record.number, to_microseconds(record.updated_at))

    def has(self, commit: Commit) -> bool:
        """Return whether the versions of a commit were there."""
        if commit.number is not None and self.number is not None:
            return commit.number <= self.number
        return commit.batch == self.name or commit.written_at <= self.ended

    def has_newest(self, head: Head) -> bool:
        """Return whether the newest version is in the tail and was there."""
        return head.tail is not None and self.has(head.tail.segments[-1].commit)

    def last(self, run: Run) -> int | None:
        """Return the position of the last version of a commit that was there."""
        end = len(run.versions)
        for commit in reversed(run.commits):
            if self.has(commit):
                return end - 1
            end -= commit.length
        return None

    def has_time(self, moment: int) -> bool:
        """Return whether a time was past when the batch ended, or was its end."""
        return moment <= self.ended


AsOf = AsOfTime | AsOfBatch
"""A point in the history of a table."""


async def end_of_batch(table: Table, batch_id: str) -> AsOfBatch:
    """Return the end of a batch. One request. Raises `BatchRefusedError` when there is none with this id."""
    return AsOfBatch.of(await Ledger(table, system_clock).get(batch_id))
