"""What a run prints and keeps: the cases, their peaks, and how flat the memory was."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.results import machine, packages
from benchmarks.skew.run import Found

GOAL = 400
"""The most that a worker should take, in MB."""

_WIDTH = 160
_KEPT_SAMPLES = 100


def print_table(found: Sequence[Found]) -> None:
    """Print a row for each case."""
    table = Table("case", "what")
    for title in ("messages", "messages/s", "peak MB", "own share", "0-25 %", "-50 %", "-75 %", "-100 %"):
        table.add_column(title, justify="right")
    table.add_column(f"at most {GOAL} MB")
    for each in found:
        share = each.peak_proportional
        table.add_row(
            each.case.name,
            each.case.sentence,
            f"{each.case.messages:,}",
            f"{each.rate:,.0f}",
            f"{each.peak:.0f}",
            "unknown" if share is None else f"{share:.0f}",
            *("-" if size is None else f"{size:.0f}" for size in each.quarters),
            "met" if each.peak <= GOAL else "missed",
        )
    console = Console(width=_WIDTH, highlight=False)
    console.print(
        "\nThe largest Python worker of each case, in MB: its peak, and the most that it took in each quarter of the "
        "work"
    )
    console.print(table)


def write_results(found: Sequence[Found], size: str, begun: datetime, code: str, folder: Path) -> Path:
    """Write the file of a run and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{begun:%Y-%m-%d}-skew-{size}.json"
    kept = {
        "begun": begun.isoformat(),
        "size": size,
        "code": code,
        "machine": machine(2),
        "packages": packages(),
        "goal_mb": GOAL,
        "cases": {each.case.name: _as_json(each) for each in found},
    }
    path.write_text(json.dumps(kept, indent=2) + "\n")
    return path


def _as_json(found: Found) -> Mapping[str, Any]:
    every = max(1, len(found.samples) // _KEPT_SAMPLES)
    return {
        "what": found.case.sentence,
        "messages": found.case.messages,
        "streams": found.case.games,
        "seconds": found.seconds,
        "rate": found.rate,
        "transactions": found.transactions,
        "peak_mb": found.peak,
        "peak_proportional_mb": found.peak_proportional,
        "quarters_mb": list(found.quarters),
        "samples": [
            {
                "seconds": round(sample.seconds, 2),
                "done": sample.done,
                "resident": sorted(sample.resident.values(), reverse=True),
                "proportional": sorted(sample.proportional.values(), reverse=True),
            }
            for sample in found.samples[::every]
        ],
    }
