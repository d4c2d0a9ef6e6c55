"""The table that a run prints: contenders, ratios with their goals, and who was left out."""

from __future__ import annotations

import statistics

from rich.console import Console
from rich.table import Table

from benchmarks.catalogue import CONTENDERS
from benchmarks.results import Ratio, Results
from benchmarks.sizes import ONE_AT_A_TIME

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
