"""What a series found: requests and times at each size, the verdict, the tables, and the file that keeps it."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.growth.folding import Cost, Plan
from benchmarks.results import machine, packages


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


def write_results(
    curves: Sequence[Curve],
    plans: Mapping[str, Plan],
    *,
    size: str,
    begun: datetime,
    code: str,
    folder: Path,
) -> Path:
    """Write the file of a run and return its path."""
    found: Mapping[str, Any] = {
        "begun": begun.isoformat(),
        "size": size,
        "code": code,
        "machine": machine(1),
        "packages": packages(),
        "series": {
            curve.name: {
                "turns": plans[curve.name].turns,
                "messages": plans[curve.name].messages,
                **curve.as_json(),
            }
            for curve in curves
        },
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{begun:%Y-%m-%d}-growth-{size}.json"
    path.write_text(json.dumps(found, indent=2) + "\n")
    return path


_WIDTH = 130
_FACTS = {
    "rows": "rows",
    "versions": "versions kept",
    "stored_bytes": "stored bytes",
    "bytes_per_message": "stored bytes/message",
    "read_microseconds": "whole history µs/message",
    "memory_bytes": "memory bytes",
}


def print_curve(curve: Curve) -> None:
    """Print the points of a series and its verdict."""
    console = Console(width=_WIDTH, highlight=False)
    console.print(f"\n{curve.name}: {curve.title}")
    facts = [name for name in _FACTS if name in curve.points[0].counted.facts]
    table = Table()
    for title in (
        curve.quantity,
        "messages",
        "min µs/message",
        "median",
        "max",
        "requests/stream and batch",
        "bytes read/stream and batch",
        *(_FACTS[name] for name in facts),
    ):
        table.add_column(title, justify="right")
    for point in curve.points:
        table.add_row(*_cells(point, facts))
    console.print(table)
    for point in curve.points:
        if point.refused:
            console.print(
                f"{point.size:,}: nothing is stored, each message is a dead letter, {point.refused}."
            )
    verdict = curve.verdict
    what = "a unit of work (here bytes of state)" if curve.points[-1].work != 1 else "a message"
    console.print(
        f"The time of {what} at the largest size is {verdict.ratio:.3g} times that at the smallest "
        f"(goal at most {verdict.most:g}: {'met' if verdict.is_met else 'missed'})."
    )


def _cells(point: Point, facts: list[str]) -> list[str]:
    times = point.times
    return [
        f"{point.size:,}",
        f"{point.counted.messages:,}",
        f"{min(times):,.1f}",
        f"{point.median:,.1f}",
        f"{max(times):,.1f}",
        f"{point.requests:.2f}",
        f"{point.bytes_read:,.0f}",
        *(f"{point.fact(name):,.1f}" for name in facts),
    ]
