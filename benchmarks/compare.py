"""The command: `python -m benchmarks compare`."""

from __future__ import annotations

import os
import signal
import statistics
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.catalogue import CONTENDERS
from benchmarks.marks import put_into
from benchmarks.results import FOLDER, Ratio, Results
from benchmarks.sizes import ONE_AT_A_TIME, SIZES, Amount, Size
from benchmarks.turns import run

_WIDTH = 160


def print_table(results: Results) -> None:
    """Print everything that a reader compares by."""
    console = Console(width=_WIDTH, highlight=False)
    size = results.size
    console.print(
        f"\n{size.name}: {size.runs} turns on {results.cores} cores, streams of {size.per_stream} messages. Contenders "
        f"marked * take one message at a time and got fewer messages: compare messages/s."
    )
    console.print(_table(results))
    for what, median, goal in results.limits():
        console.print(f"{what}: {median:.1f} (goal at most {goal:g}: {_verdict(is_met=median <= goal)})")
    if not results.is_of_one_code:
        console.print(
            "The code was changed while this ran: contenders measured different code. Run it again."
        )
    for name, reason in results.left_out.items():
        console.print(f"Left out: {name}, because {reason}.")


def _table(results: Results) -> Table:
    table = Table("contender", "durability")
    for title in ("messages", "start s", "min s", "median s", "max s", "messages/s"):
        table.add_column(title, justify="right")
    table.add_column("ratio of messages/s (goal)")
    ratios: dict[str, list[Ratio]] = {}
    for ratio in results.ratios():
        ratios.setdefault(_row_of(ratio), []).append(ratio)
    for name, measurements in results.measured.items():
        seconds = [one.seconds for one in measurements]
        table.add_row(
            name + ("*" if CONTENDERS[name].amount in ONE_AT_A_TIME else ""),
            results.started[name].durability,
            f"{measurements[0].messages:,}",
            f"{results.started[name].seconds:.1f}",
            f"{min(seconds):.2f}",
            f"{statistics.median(seconds):.2f}",
            f"{max(seconds):.2f}",
            f"{statistics.median(one.rate for one in measurements):,.0f}",
            "\n".join(_words(ratio) for ratio in ratios.get(name, [])),
        )
    return table


def _row_of(ratio: Ratio) -> str:
    """Return the contender in whose row a ratio stands: the one that is not this project's batch."""
    comparison = ratio.comparison
    return comparison.one if comparison.other == "consistent" else comparison.other


def _words(ratio: Ratio) -> str:
    goal = ratio.comparison.goal
    found = f"{ratio.comparison.name} = {ratio.median:.2f}"
    if goal is None:
        return f"{found} (no goal)"
    return f"{found} (≥ {goal:g}: {_verdict(is_met=bool(ratio.is_met))})"


def _verdict(*, is_met: bool) -> str:
    return "met" if is_met else "missed"


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
