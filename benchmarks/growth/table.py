"""The tables that a run prints, one for each series."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from benchmarks.growth.curve import Curve, Point

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
