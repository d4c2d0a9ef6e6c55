"""What a series found: at each size the requests that were counted, and the times of all turns; and the verdict."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.growth.measurement import Cost


@dataclass(slots=True)
class Point:
    """One size. `counted` is the turn in which requests were counted, `timed` are those in which they were not.

    `work` is how much a message of this size is.
    """

    size: int
    work: float
    counted: Cost
    timed: list[Cost] = field(default_factory=list)

    @property
    def times(self) -> Sequence[float]:
        """The microseconds of a message, turn by turn."""
        return [cost.microseconds for cost in self.timed]

    @property
    def median(self) -> float:
        """The microseconds of a message."""
        return statistics.median(self.times)

    @property
    def requests(self) -> float:
        """Requests for each stream and batch."""
        return self.counted.requests / self.counted.visits

    @property
    def bytes_read(self) -> float:
        """Bytes read for each stream and batch."""
        return self.counted.bytes_read / self.counted.visits

    @property
    def refused(self) -> str | None:
        """Why nothing was stored at this size, None where it was."""
        reasons = self.counted.outcomes.keys() - {"processed", "duplicate"}
        return ", ".join(sorted(reasons)) or None

    def fact(self, name: str) -> float:
        """Return the median of a fact."""
        return statistics.median(cost.facts[name] for cost in self.timed)

    def as_json(self) -> Mapping[str, Any]:
        """Return everything as it is kept."""
        facts = {name: self.fact(name) for name in self.counted.facts}
        return {
            "size": self.size,
            "work": self.work,
            "messages": self.counted.messages,
            "visits": self.counted.visits,
            "outcomes": dict(self.counted.outcomes),
            "microseconds": list(self.times),
            "requests_per_visit": self.requests,
            "bytes_read_per_visit": self.bytes_read,
            "bytes_sent_per_visit": self.counted.bytes_sent / self.counted.visits,
            "facts": facts,
        }


@dataclass(frozen=True, slots=True)
class Verdict:
    """How many times the time of a unit of work is at the largest size what it is at the smallest.

    Both are medians; sizes at which nothing was stored do not take part.
    """

    ratio: float
    most: float

    @property
    def is_met(self) -> bool:
        """Whether cost grows no faster than work."""
        return self.ratio <= self.most


@dataclass(slots=True)
class Curve:
    """The points of a series in the order of their sizes."""

    name: str
    title: str
    quantity: str
    most: float
    points: list[Point] = field(default_factory=list)

    @property
    def verdict(self) -> Verdict:
        """The verdict."""
        stored = [point for point in self.points if point.refused is None]
        first, last = stored[0], stored[-1]
        return Verdict((last.median / last.work) / (first.median / first.work), self.most)

    def as_json(self) -> Mapping[str, Any]:
        """Return everything as it is kept."""
        verdict = self.verdict
        return {
            "title": self.title,
            "quantity": self.quantity,
            "points": [point.as_json() for point in self.points],
            "largest_to_smallest": {
                "ratio": verdict.ratio,
                "most": verdict.most,
                "is_met": verdict.is_met,
            },
        }
