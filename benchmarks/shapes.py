"""What a stream costs: a batch beside the bare fold, by the number of messages that each stream gets.

    python -m benchmarks shapes [--document docs/performance.md]

Each shape is a log of its own; the two contenders take turns on it, as in `compare`.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.marks import check_marks, put_parts
from benchmarks.results import FOLDER, Results
from benchmarks.sizes import Size
from benchmarks.turns import run

PART = "shapes"


@dataclass(frozen=True, slots=True)
class Shape:
    """A log, and what is aimed at: a share of the bare fold's messages/s, and bytes a version."""

    name: str
    per_stream: int
    ratio: float
    bytes_per_version: float
    ours: str = "consistent"
    duplicates: float = 0.0


SHAPES = (
    Shape("1 message a stream, new streams", 1, 0.40, 250),
    Shape("3 a stream, new streams", 3, 0.55, 130),
    Shape("1 a stream, each with 100 versions", 1, 0.35, 150, ours="consistent-history"),
    Shape("50 a stream", 50, 0.65, 85),
    Shape("1,000 a stream, 10 % duplicates", 1_000, 0.70, 60, duplicates=0.1),
)


def measure(shape: Shape, messages: int, runs: int, cores: int) -> Results:
    """Run both contenders on the log of a shape."""
    size = Size(
        f"shape-{shape.per_stream}-{shape.ours}",
        {"batch": messages},
        per_stream=shape.per_stream,
        runs=runs,
        warm_up=messages if shape.ours == "consistent" else 1_000,
        duplicates=shape.duplicates,
    )
    return run(size, [shape.ours, "bare-fold"], cores=cores, in_flight=32, step=_say)


def row_of(shape: Shape, results: Results) -> list[str]:
    """Return the figures of a shape: the medians over the turns, the ratio pair by pair of one turn."""
    ours, bare = results.measured[shape.ours], results.measured["bare-fold"]
    ratios = [one.rate / other.rate for one, other in zip(ours, bare, strict=True)]
    size = statistics.median(one.facts["bytes_per_version"] for one in ours)
    return [
        shape.name,
        f"{statistics.median(one.rate for one in ours):,.0f}",
        f"{statistics.median(one.rate for one in bare):,.0f}",
        f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})",
        f"{shape.ratio:.2f}",
        f"{size:.0f}",
        f"{shape.bytes_per_version:.0f}",
    ]


TITLES = ("messages a stream", "messages/s", "bare fold", "ratio", "goal", "bytes a version", "goal")


def _say(sentence: str) -> None:
    typer.echo(sentence, err=True)


def main(
    messages: Annotated[int, typer.Option(min=4_000, help="Messages of each log.")] = 180_000,
    runs: Annotated[int, typer.Option(min=1, help="Turns.")] = 3,
    only: Annotated[list[int] | None, typer.Option(help="The number of a shape, from 1.")] = None,
    cores: Annotated[int, typer.Option(min=1, help="Processes that work at once.")] = 2,
    document: Annotated[Path | None, typer.Option(help="The document to put the table into.")] = None,
) -> None:
    """Measure each shape, and print a table."""
    if document is not None:
        check_marks(document, [PART])
    rows = []
    for number, shape in enumerate(SHAPES, 1):
        if not only or number in only:
            _say(f"Shape {number} of {len(SHAPES)}: {shape.name}")
            results = measure(shape, messages, runs, cores)
            results.write(FOLDER)
            rows.append(row_of(shape, results))
    table = Table(*TITLES)
    for row in rows:
        table.add_row(*row)
    Console(width=160, highlight=False).print(table)
    if document is not None:
        lines = [f"Median of {runs} turns on {cores} cores, {messages:,} messages each.", ""]
        lines += ["| " + " | ".join(TITLES) + " |", "|---|" + "---:|" * (len(TITLES) - 1)]
        lines += ["| " + " | ".join(row) + " |" for row in rows]
        put_parts(document, {PART: "\n".join(lines) + "\n"})


if __name__ == "__main__":
    typer.run(main)
