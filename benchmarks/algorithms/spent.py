"""What messages have cost."""

from __future__ import annotations

from typing import NamedTuple

from benchmarks.algorithms.counted_app import CountedApp
from benchmarks.algorithms.metered_table import MeteredTable


class Spent(NamedTuple):
    """What was spent: requests, rows that they read, runs of handlers, and bytes by which the table has grown."""

    requests: float
    rows_read: float
    runs: float
    stored_bytes: float

    @classmethod
    def until_now(cls, table: MeteredTable, app: CountedApp) -> Spent:
        """Read the meters."""
        return cls(table.requests, table.rows_read, app.runs, table.stored_bytes)

    def each(self, since: Spent, messages: int) -> Spent:
        """Return what was spent since an earlier reading for each of some messages."""
        return Spent(*((now - then) / messages for now, then in zip(self, since, strict=True)))
