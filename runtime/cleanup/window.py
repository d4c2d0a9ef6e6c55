"""The window within which duplicates are recognised for certain: of one stream, and over those of a table.

Truncation moves a stream's horizon. A message that was enqueued after it either has its version, so that each copy is
recognised, or is new. An unknown one from the horizon or before cannot be told from a duplicate, and is too late.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from eventstore import KeyRange, Stream, Table
from runtime.clock import shown_time
from runtime.storage.damage import one_of_many, placed
from runtime.storage.head import HEAD_PROPERTIES, Head, read_head
from runtime.storage.listing import state_streams
from runtime.storage.run import INDEX_PROPERTIES, read_index
from runtime.storage.stream import stream_partition

ALL = KeyRange()
HOUR = 3600 * 1_000_000
SHARES = (1.0, 0.99, 0.9, 0.5, 0.1)
"""The shares of the streams that were cut for which a table of windows says since when duplicates are recognised."""

_HEADER = ["StateVersions", "StateSchema", "KeptFrom", "Horizon", "UndatedCut"]


class Window(NamedTuple):
    """What is kept of one stream. Times are microseconds since 1970 UTC.

    `kept_from` is the oldest version that is kept, written at `oldest`. `horizon` is None until a version with
    a time was cut, and `undated_cut` says that one without a time was.
    """

    handler: str
    business_id: str
    versions: int
    kept_from: int
    oldest: int | None
    horizon: int | None
    undated_cut: bool

    @property
    def sentence(self) -> str:
        """What that means for a message that is delivered now."""
        return _sentence(self.horizon, undated_cut=self.undated_cut)


class Cut(NamedTuple):
    """A stream that was cut, ordered by how little is recognised of it; one of no time by its undated messages."""

    horizon: int
    handler: str
    business_id: str
    kept_from: int
    undated_cut: bool


@dataclass(slots=True)
class Windows:
    """The windows of many streams, in memory that does not grow with their number.

    `horizon` is the newest of all: in no stream a message that was enqueued after it is refused. `horizons` counts
    streams by theirs, rounded up to the hour, so that what is told is rather too short than too long. Of the streams of
    which least is recognised, `limit` are remembered, with 0 all that were cut.
    """

    limit: int = 10
    streams: int = 0
    cut: int = 0
    undated_cut: int = 0
    horizon: int | None = None
    horizons: Counter[int] = field(default_factory=Counter)
    _worst: list[Cut] = field(default_factory=list)

    @property
    def worst(self) -> list[Cut]:
        """The streams of which least is recognised, the worst first."""
        return sorted(self._worst, reverse=True)

    @property
    def sentence(self) -> str:
        """What that means for a message of any of the streams."""
        return _sentence(self.horizon, undated_cut=self.undated_cut > 0)

    def add(self, handler: str, business_id: str, head: Head) -> None:
        """Add the stream with this header."""
        self.streams += 1
        if head.kept_from == 1:
            return
        self.cut += 1
        self.undated_cut += head.undated_cut
        if head.horizon is not None:
            self.horizon = max(head.horizon, self.horizon or head.horizon)
            self.horizons[-(-head.horizon // HOUR) * HOUR] += 1
        self._remember(Cut(head.horizon or 0, handler, business_id, head.kept_from, head.undated_cut))

    def document(self) -> dict[str, Any]:
        """Return them for JSON."""
        return {
            "streams": self.streams,
            "cut": self.cut,
            "undated_cut": self.undated_cut,
            "horizon": self.horizon,
            "horizons": list(self.horizons.items()),
            "worst": self.worst,
        }

    def merge(self, document: Mapping[str, Any]) -> None:
        """Add the streams of others, which are none of these."""
        self.streams += document["streams"]
        self.cut += document["cut"]
        self.undated_cut += document["undated_cut"]
        if document["horizon"] is not None:
            self.horizon = max(document["horizon"], self.horizon or document["horizon"])
        self.horizons.update(dict(document["horizons"]))
        for cut in document["worst"]:
            self._remember(Cut(*cut))

    def _remember(self, cut: Cut) -> None:
        if self.limit and len(self._worst) >= self.limit:
            heapq.heappushpop(self._worst, cut)
        else:
            heapq.heappush(self._worst, cut)

    def quantiles(self) -> Iterator[tuple[float, int]]:
        """Give, for shares of the streams with a horizon, the hour after which duplicates are recognised in them."""
        total = self.horizons.total()
        if not total:
            return
        ordered = sorted(self.horizons.items())
        for share in SHARES:
            count = 0
            for horizon, streams in ordered:
                count += streams
                if count >= share * total:
                    yield share, horizon
                    break


async def window_of(table: Table, handler: str, business_id: str) -> Window | None:
    """Return the window of one stream, None when there is no stream. Costs one request."""
    partition = stream_partition(table, handler, business_id)
    with placed(table, partition.key):
        read = await Stream.try_read(partition, slice_size=1, select=INDEX_PROPERTIES, header=HEAD_PROPERTIES)
        if read is None:
            return None
        head = read_head(read.stream.properties or {})
        kept = [read_index(event) for event in read.events] or (head.tail.indexes() if head.tail else [])
        oldest = kept[0].commits[0].written_at if kept else None
        return Window(
            handler, business_id, head.versions, head.kept_from, oldest, head.horizon, head.undated_cut
        )


async def windows(table: Table, keys: KeyRange = ALL, limit: int = 10) -> Windows:
    """Return the windows of all streams in a range of keys. One request for each 1,000 streams."""
    found = Windows(limit)
    async for stream in state_streams(table, keys, _HEADER):
        name, _, business_id = stream.partition.key.partition("-")
        with one_of_many(table, stream.partition.key):
            found.add(name, business_id, read_head(stream.properties or {}))
    return found


def _sentence(horizon: int | None, *, undated_cut: bool) -> str:
    if horizon is None and not undated_cut:
        return "No version was cut: each duplicate is recognised, however old it is."
    undated = (
        "An unknown message without enqueued_at is too_late."
        if undated_cut
        else "Messages without enqueued_at are all recognised."
    )
    if horizon is None:
        return f"Each duplicate with enqueued_at is recognised, however old it is. {undated}"
    return (
        f"Duplicates that were enqueued after {shown_time(horizon)} are recognised for certain. An unknown message "
        f"of that time or before is too_late. {undated}"
    )
