"""The command: `python -m benchmarks algorithms`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, get_args

import typer

from benchmarks.algorithms import comparison, costs
from benchmarks.algorithms.costs import measure
from benchmarks.algorithms.grid import Grid
from benchmarks.marks import check_marks, put_parts
from runtime.algorithms.choice import AlgorithmName

HELP = """Measure what each algorithm costs: requests, rows read and bytes kept for a message.

Games of the ShootingRange sample are processed with each algorithm on a table in memory that counts what is asked of
it. No time is taken, so it does not matter what else the machine does. It takes a few seconds.
"""

PARTS = (comparison.PART, costs.PART)

cli = typer.Typer(add_completion=False)


@cli.command(help=HELP)
def main(
    document: Annotated[
        Path | None,
        typer.Option(
            help="A document to put the tables into, like docs/algorithms.md.",
            exists=True,
            dir_okay=False,
            writable=True,
        ),
    ] = None,
) -> None:
    """Measure, print the tables, and put them into a document if one is given."""
    if document is not None:
        _check(document)
    grids = measure_all()
    for grid in grids.values():
        grid.print()
    if document is not None:
        put_parts(document, {part: grid.markdown() for part, grid in grids.items()})
        print(f"Written to {document}.")


def measure_all() -> dict[str, Grid]:
    """Measure everything, and return the tables by the parts of a document that they belong into."""
    names: tuple[AlgorithmName, ...] = get_args(AlgorithmName)
    found = [
        comparison.comparison({name: measure(name) for name in names}),
        costs.measure_deliveries(),
    ]
    return dict(zip(PARTS, found, strict=True))


def _check(document: Path) -> None:
    try:
        check_marks(document, PARTS)
    except (OSError, ValueError) as error:
        raise typer.BadParameter(str(error), param_hint="--document") from error


if __name__ == "__main__":
    cli()
