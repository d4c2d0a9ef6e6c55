"""The command: `python -m benchmarks growth`."""

from __future__ import annotations

import signal
import sys
import tempfile
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.code import code_digest
from benchmarks.growth.catalogue import SERIES, SIZES, run_series
from benchmarks.growth.curve import Curve, print_curve, write_results
from benchmarks.logs import CACHE
from benchmarks.results import FOLDER, now

PLOTS = Path(__file__).parents[2] / "docs" / "growth"
HELP = f"""Measure how time and store requests grow with one quantity at a time.

Each series is a batch after another without Spark, folded as Spark's workers do it, on SQLite. Requests are counted in
a turn of their own; times are the median of several turns.

The series are: {", ".join(SERIES)}.

Without options it takes four to eight minutes. Results go to benchmarks/results/DATE-growth-SIZE.json, plots to
docs/growth.
"""

cli = typer.Typer(add_completion=False)


@cli.command(help=HELP)
def main(
    size: Annotated[str, typer.Option(help=f"How much work: {' or '.join(SIZES)}.")] = "default",
    only: Annotated[list[str] | None, typer.Option(help="A series; may be given more than once.")] = None,
    turns: Annotated[int | None, typer.Option(min=1, help="How often each size is timed.")] = None,
    results: Annotated[Path, typer.Option(help="The folder for the results.")] = FOLDER,
    plots: Annotated[Path, typer.Option(help="The folder for the plots.")] = PLOTS,
) -> None:
    """Measure the series, print the tables, write the results and draw the plots."""
    if size not in SIZES:
        message = f"{size} is none of {', '.join(SIZES)}."
        raise typer.BadParameter(message, param_hint="--size")
    unknown = [name for name in only or () if name not in SERIES]
    if unknown:
        message = f"There is no series {', '.join(unknown)}; there are {', '.join(SERIES)}."
        raise typer.BadParameter(message, param_hint="--only")
    plans = {
        name: replace(plan, turns=turns or plan.turns)
        for name, plan in SIZES[size].items()
        if not only or name in only
    }
    begun, code = now(), code_digest()
    curves: list[Curve] = []
    (CACHE / "runs").mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE / "runs") as folder:
        for name, plan in plans.items():
            typer.echo(f"Measuring {name}", err=True)
            curves.append(run_series(name, plan, Path(folder) / name))
            print_curve(curves[-1])
    name = f"{size}-part" if only else size
    print(
        f"\nAll measurements: {write_results(curves, plans, size=name, begun=begun, code=code, folder=results)}"
    )
    print(draw_all(curves, plots))


def draw_all(curves: list[Curve], folder: Path) -> str:
    """Draw the plots if that is possible, and say where they are or what is missing."""
    if find_spec("matplotlib") is None:
        return "No plots: matplotlib is not installed (`make .make/packages-bench` installs it)."
    from benchmarks.growth.plots import draw  # noqa: PLC0415 - matplotlib is not installed everywhere

    for curve in curves:
        draw(curve, folder)
    return f"Plots: {folder}"


def _end_in_order(signal_number: int, _: object) -> None:
    sys.exit(128 + signal_number)


if __name__ == "__main__":
    # Whoever ends this means the processes of the series too.
    signal.signal(signal.SIGTERM, _end_in_order)
    cli()
