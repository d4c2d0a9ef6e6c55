"""The change feed: of the versions that some batches have made, those that changed a state.

Applied in the order of their versions, the changes up to the end of a batch give the states as of that batch. Of a
stream whose older versions were cut, what they came to stands before the others as a snapshot.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eventstore import Table
from runtime.batches.ledger import Ledger
from runtime.batches.record import BatchRecord
from runtime.clock import system_clock, to_microseconds
from runtime.storage.run import Commit
from runtime.tables.as_of import AsOfBatch
from runtime.tables.columns import TEXT, Columns
from runtime.tables.decoding import Decoded

INSERT, UPDATE, SNAPSHOT = "insert", "update", "snapshot"


@dataclass(frozen=True, slots=True)
class ChangeFeed:
    """What was changed from the begin of one batch to the end of another, both included; None leaves an end open."""

    start: BatchRecord | None = None
    end: AsOfBatch | None = None

    def columns(self, columns: Columns) -> Columns:
        """Return the columns of the feed, given those of versions."""
        return {"change_type": TEXT, **columns}

    def has(self, commit: Commit) -> bool:
        """Say whether a commit is of one of the batches."""
        return self._has_begun(commit) and (self.end is None or self.end.has(commit))

    def positions(self, some: Decoded, positions: Sequence[int]) -> Sequence[int]:
        """Return the positions of the versions that are in the feed."""
        afters, commits = some.run.versions.afters, some.commits
        return [
            position
            for position in positions
            if (afters[position] is not None or some.first + position == 1) and self.has(commits[position])
        ]

    def kinds(self, some: Decoded) -> Sequence[str]:
        """Return what kind of change each version is."""
        return [INSERT if some.first + position == 1 else UPDATE for position in range(some.count)]

    def snapshot(self, some: Decoded) -> Mapping[str, Any] | None:
        """Return what the versions came to that were cut before the first part of a stream.

        None if none were, and where the end of the feed lies among them: then it is not known.
        """
        is_known = self.end is None or self.end.has(some.commits[0])
        if some.first == 1 or self.start is not None or not is_known:
            return None
        state = some.run.before
        return {
            "change_type": SNAPSHOT,
            "handler": some.stream.handler,
            "business_id": some.stream.business_id,
            "version": some.first - 1,
            "schema": some.run.schema,
            "changed": True,
            "after": some.read([state])[0],
        }

    def _has_begun(self, commit: Commit) -> bool:
        if self.start is None:
            return True
        if commit.number is not None and self.start.number is not None:
            return commit.number >= self.start.number
        begun = to_microseconds(self.start.started_at)
        return commit.batch == self.start.batch_id or commit.written_at >= begun


async def change_feed(table: Table, start: str | None, end: str | None) -> ChangeFeed:
    """Return the feed of the batches between two. One request for each. Raises `BatchRefusedError`."""
    ledger = Ledger(table, system_clock)
    first = None if start is None else await ledger.get(start)
    return ChangeFeed(first, None if end is None else AsOfBatch.of(await ledger.get(end)))
