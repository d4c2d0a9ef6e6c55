"""What is asked of a table: which streams, from which time, and which columns."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace

from eventstore import KeyRange, Table
from runtime.messages.message_ids import canonical
from runtime.tables.streams import StreamHead, head_at, heads

ALL = KeyRange()
_HYPHEN = "-"
"""Stands in a key between handler and business id."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which rows and columns are asked for: None stands for all.

    `since` and `until` are times in microseconds since 1970 UTC, both included: of a version, or of the newest one.
    """

    handler: str | None = None
    business_id: str | None = None
    since: int | None = None
    until: int | None = None
    columns: tuple[str, ...] | None = None

    @property
    def keys(self) -> Sequence[str] | None:
        """The partition keys of the one stream that is meant, by the spellings of its business id; None for many.

        A name with a hyphen is of no handler: it would begin keys of another one.
        """
        if self.handler is not None and _HYPHEN in self.handler:
            return []
        if self.handler is None or self.business_id is None:
            return None
        spellings = dict.fromkeys([self.business_id, canonical(self.business_id)])
        return [f"{self.handler}-{spelling}" for spelling in spellings]

    @property
    def prefix(self) -> str:
        """What the keys of the streams begin with."""
        return "" if self.handler is None else f"{self.handler}-"

    def within(self, keys: KeyRange) -> KeyRange:
        """Return the part of a range in which the streams are."""
        return replace(keys, prefix=self.prefix)

    def has(self, moment: int) -> bool:
        """Say whether a time is between those that are asked for."""
        return (self.since is None or moment >= self.since) and (self.until is None or moment <= self.until)


async def heads_of(table: Table, wanted: Wanted, keys: KeyRange = ALL) -> AsyncIterator[StreamHead]:
    """Give the headers of the streams that are asked for: one request for each 1,000, or one for a single stream."""
    if wanted.keys is None:
        async for stream in heads(table, wanted.within(keys)):
            if wanted.business_id in {None, stream.business_id}:
                yield stream
        return
    for key in wanted.keys:
        found = await head_at(table, key)
        if found is not None:
            yield found
