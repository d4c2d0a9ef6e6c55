"""The command: `python -m benchmarks cleanup`."""

from __future__ import annotations

import json
import signal
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.cleanup.run import Found, run
from benchmarks.code import code_digest
from benchmarks.logs import CACHE
from benchmarks.processes import own_process
from benchmarks.results import FOLDER, machine, now, packages

SIZES = {
    "small": (("sqlite", 1_000), ("sqlite", 10_000), ("azurite", 200), ("azurite", 1_000)),
    "default": (("sqlite", 1_000), ("sqlite", 10_000), ("sqlite", 100_000), ("azurite", 2_000)),
    "full": (
        ("sqlite", 10_000),
        ("sqlite", 100_000),
        ("sqlite", 1_000_000),
        ("azurite", 2_000),
        ("azurite", 20_000),
    ),
}
HELP = """Truncate tables of very many streams, and watch the memory of driver and workers.

Each table has a Spark session of its own on two cores. A stream has three runs that go, and a tail. Results go to
benchmarks/results/DATE-cleanup-SIZE.json. It reads /proc, so it needs Linux.

With --size full SQLite takes half an hour, and Azurite, whose requests take longer the larger a table is, one to two
hours: see --only.
"""

cli = typer.Typer(add_completion=False)


@cli.command(help=HELP)
def main(
    size: Annotated[str, typer.Option(help=f"How many streams: {', '.join(SIZES)}.")] = "default",
    only: Annotated[str | None, typer.Option(help="The tables of one store: sqlite or azurite.")] = None,
    results: Annotated[Path, typer.Option(help="The folder for the results.")] = FOLDER,
) -> None:
    """Truncate the tables, print what that took and write it."""
    if size not in SIZES:
        message = f"{size} is none of {', '.join(SIZES)}."
        raise typer.BadParameter(message, param_hint="--size")
    if only not in (None, "sqlite", "azurite"):
        raise typer.BadParameter("There are sqlite and azurite.", param_hint="--only")
    begun, code = now(), code_digest()
    found: list[Found] = []
    (CACHE / "runs").mkdir(parents=True, exist_ok=True)
    for store, streams in (each for each in SIZES[size] if only in (None, each[0])):
        typer.echo(f"Truncating {streams:,} streams on {store}", err=True)
        with tempfile.TemporaryDirectory(dir=CACHE / "runs") as folder, own_process() as process:
            found.append(process.submit(run, store, streams, Path(folder)).result())
    _print(found)
    results.mkdir(parents=True, exist_ok=True)
    path = results / f"{begun:%Y-%m-%d}-cleanup-{size}.json"
    about = {"begun": begun.isoformat(), "code": code, "machine": machine(2), "packages": packages()}
    path.write_text(json.dumps({**about, "tables": [asdict(each) for each in found]}, indent=2) + "\n")
    print(f"All measurements: {path}")


def _print(found: Sequence[Found]) -> None:
    table = Table("store")
    for title in (
        "streams",
        "rows deleted",
        "seconds",
        "streams/s",
        "requests",
        "per row",
        "worker MB",
        "driver MB",
    ):
        table.add_column(title, justify="right")
    for each in found:
        table.add_row(
            each.store,
            f"{each.streams:,}",
            f"{each.rows:,}",
            f"{each.seconds:.1f}",
            f"{each.streams / each.seconds:,.0f}",
            f"{each.requests:,}",
            f"{each.requests_per_row:.2f}",
            f"{each.worker_mb:.0f}",
            f"{each.driver_mb:.0f}",
        )
    Console(width=140, highlight=False).print(table)


def _end_in_order(signal_number: int, _: object) -> None:
    sys.exit(128 + signal_number)


if __name__ == "__main__":
    # Whoever ends this means the sessions of the tables too.
    signal.signal(signal.SIGTERM, _end_in_order)
    cli()
