"""The command: `python -m benchmarks side_effects`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from benchmarks.algorithms.grid import Grid
from benchmarks.marks import check_marks, put_parts
from benchmarks.side_effects.counting import Counts, at_random, drivers, each_step

HELP = """Kill consumers that store documents, with SIGKILL, and count what is lost, wrong and left over.

Each round handles orders of the sample of invoices in processes of their own, with states in SQLite and PDFs in a
folder. Then the orders are redelivered, and what the killed have left is swept. The last row is a batch on Spark, whose
driver is killed seven times before it is run to its end.
"""
PART = "killed consumers"
COLUMNS = [
    "rounds", "kills", "orders", "announcements", "documents swept", "orders without their document",
    "documents with another hash", "documents left over",
]  # fmt: skip

cli = typer.Typer(add_completion=False)


@cli.command(help=HELP)
def main(
    document: Annotated[
        Path | None,
        typer.Option(
            help="A document to put the table into, like docs/side-effects.md.", exists=True, dir_okay=False
        ),
    ] = None,
    *,
    rounds: Annotated[int, typer.Option(min=1, help="How many rounds with a kill at random.")] = 200,
    batch: Annotated[bool, typer.Option(help="Whether drivers of a batch on Spark are killed too.")] = True,
) -> None:
    """Kill, count, print the table, and put it into a document if one is given."""
    if document is not None:
        _check(document)
    counted = {
        "one consumer, before each of its calls": each_step(after=False),
        "one consumer, after each of its calls": each_step(after=True),
        "one of two with the same orders, anywhere": at_random(rounds),
    }
    if batch:
        counted["one driver of a batch after another"] = drivers()
    grid = _grid(counted)
    grid.print()
    if document is not None:
        put_parts(document, {PART: grid.markdown()})
        print(f"Written to {document}.")
    if not all(counts.is_right for counts in counted.values()):
        raise typer.Exit(1)


def _grid(counted: dict[str, Counts]) -> Grid:
    return Grid(
        ["who is killed, and when", *COLUMNS], [[name, *counts.row()] for name, counts in counted.items()]
    )


def _check(document: Path) -> None:
    try:
        check_marks(document, [PART])
    except (OSError, ValueError) as error:
        raise typer.BadParameter(str(error), param_hint="--document") from error


if __name__ == "__main__":
    cli()
