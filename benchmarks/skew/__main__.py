"""The command: `python -m benchmarks skew`."""

from __future__ import annotations

import signal
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.code import code_digest
from benchmarks.logs import CACHE
from benchmarks.processes import own_process
from benchmarks.results import FOLDER, now
from benchmarks.skew.run import NAMES, SIZES, Found, run_case
from benchmarks.skew.table import print_table, write_results

HELP = f"""Run batches as lopsided as they come, and watch the memory of Spark's Python workers from outside.

Each case has a Spark session of its own on two cores, and a new SQLite store.

The cases are: {", ".join(NAMES)}.

Without options it takes about two minutes, with --size full about half an hour. Results go to
benchmarks/results/DATE-skew-SIZE.json. It reads /proc, so it needs Linux.
"""

cli = typer.Typer(add_completion=False)


@cli.command(help=HELP)
def main(
    size: Annotated[str, typer.Option(help=f"How much work: {' or '.join(SIZES)}.")] = "default",
    only: Annotated[list[str] | None, typer.Option(help="A case; may be given more than once.")] = None,
    results: Annotated[Path, typer.Option(help="The folder for the results.")] = FOLDER,
) -> None:
    """Run the cases, print the table and write the results."""
    if size not in SIZES:
        message = f"{size} is none of {', '.join(SIZES)}."
        raise typer.BadParameter(message, param_hint="--size")
    unknown = [name for name in only or () if name not in NAMES]
    if unknown:
        message = f"There is no case {', '.join(unknown)}; there are {', '.join(NAMES)}."
        raise typer.BadParameter(message, param_hint="--only")
    if not Path("/proc/self/statm").exists():
        sys.exit(
            "The memory of processes is read from /proc, which this system does not have: run it on Linux."
        )
    begun, code = now(), code_digest()
    found: list[Found] = []
    (CACHE / "runs").mkdir(parents=True, exist_ok=True)
    for case in SIZES[size]:
        if only and case.name not in only:
            continue
        typer.echo(f"Running {case.name}: {case.messages:,} messages, {case.sentence}", err=True)
        with tempfile.TemporaryDirectory(dir=CACHE / "runs") as folder, own_process() as process:
            found.append(process.submit(run_case, case, Path(folder)).result())
    print_table(found)
    name = f"{size}-part" if only else size
    print(f"All measurements: {write_results(found, name, begun, code, results)}")


def _end_in_order(signal_number: int, _: object) -> None:
    sys.exit(128 + signal_number)


if __name__ == "__main__":
    # Whoever ends this means the sessions of the cases too.
    signal.signal(signal.SIGTERM, _end_in_order)
    cli()
