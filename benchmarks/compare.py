"""The command: `python -m benchmarks compare`."""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.catalogue import CONTENDERS
from benchmarks.document import put_into
from benchmarks.results import FOLDER
from benchmarks.sizes import ONE_AT_A_TIME, SIZES, Amount, Size
from benchmarks.table import print_table
from benchmarks.turns import run

HELP = f"""Measure this project beside others, on this machine.

Every contender brings a log of the ShootingRange sample to the same final states, which is checked each time. It lives
in a process of its own that is started and warmed up first; then all work in turn, and only work on a warm session
is measured. Machines differ and are noisy: what counts are the ratios, taken pair by pair of the same turn.

The contenders are: {", ".join(CONTENDERS)}.

Without options it takes five to ten minutes on two cores. Results go to benchmarks/results/DATE-SIZE.json.
"""

cli = typer.Typer(add_completion=False)


@cli.command(help=HELP)
def main(  # noqa: PLR0917 - typer gives them by name
    size: Annotated[str, typer.Option(help=f"How much work: {' or '.join(SIZES)}.")] = "default",
    messages: Annotated[int | None, typer.Option(min=1, help="Messages of a batch, on Azurite too.")] = None,
    streams: Annotated[
        int | None, typer.Option(min=1, help="Streams of a batch; others in proportion.")
    ] = None,
    single: Annotated[
        int | None, typer.Option(min=1, help="Messages of those that take one message at a time.")
    ] = None,
    duplicates: Annotated[
        float, typer.Option(min=0, max=10, help="Share of messages that come once more.")
    ] = 0.0,
    runs: Annotated[int | None, typer.Option(min=1, help="Turns.")] = None,
    only: Annotated[
        list[str] | None, typer.Option(help="A contender to run; may be given more than once.")
    ] = None,
    cores: Annotated[int, typer.Option(min=1, help="Processes that work at once.")] = os.cpu_count() or 1,
    in_flight: Annotated[int, typer.Option(min=1, help="Streams under way in each, on Azurite.")] = 32,
    results: Annotated[Path, typer.Option(help="The folder for the results.")] = FOLDER,
    document: Annotated[
        Path | None, typer.Option(help="A document to put the table into, like docs/performance.md.")
    ] = None,
) -> None:
    """Run the benchmarks, print the table and write the results."""
    if size not in SIZES:
        message = f"{size} is none of {', '.join(SIZES)}."
        raise typer.BadParameter(message, param_hint="--size")
    unknown = set(only or ()) - CONTENDERS.keys()
    if unknown:
        message = f"There is no contender {', '.join(unknown)}; there are {', '.join(CONTENDERS)}."
        raise typer.BadParameter(message, param_hint="--only")
    chosen = _resized(SIZES[size], messages, streams, single)
    if duplicates:
        chosen = replace(chosen, name="custom")
    chosen = replace(chosen, duplicates=duplicates, runs=runs or chosen.runs)
    if only:
        chosen = replace(chosen, name=f"{chosen.name}-part")
    found = run(chosen, only or list(CONTENDERS), cores=cores, in_flight=in_flight, step=_say)
    print_table(found)
    print(f"All measurements: {found.write(results)}")
    if document is not None:
        put_into(document, found)


def _resized(size: Size, messages: int | None, streams: int | None, single: int | None) -> Size:
    if messages is None and streams is None and single is None:
        return size
    numbers: dict[Amount, int] = dict(size.messages)
    if messages is not None:
        numbers |= {"batch": messages, "azurite": messages}
    if single is not None:
        numbers |= dict.fromkeys(ONE_AT_A_TIME, single)
    per_stream = size.per_stream if streams is None else max(1, numbers["batch"] // streams)
    return replace(size, name="custom", messages=numbers, per_stream=per_stream)


def _say(sentence: str) -> None:
    typer.echo(sentence, err=True)


def _end_in_order(signal_number: int, _: object) -> None:
    sys.exit(128 + signal_number)


if __name__ == "__main__":
    # Whoever ends this means the services and sessions of the contenders too.
    signal.signal(signal.SIGTERM, _end_in_order)
    cli()
