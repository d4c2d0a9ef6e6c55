"""The series by name, their plans at each size of a run, and their turns: the first warms up and counts requests."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from benchmarks.growth.curve import Curve, Point
from benchmarks.growth.folding import Plan, Series
from benchmarks.growth.ledger import LedgerSize
from benchmarks.growth.states import StateSize
from benchmarks.growth.streams import (
    Duplicates,
    History,
    MessagesPerStream,
    SmallAppends,
    StreamsPerBatch,
    UnderPolicy,
)
from benchmarks.processes import own_process

SERIES: Mapping[str, type[Series]] = {
    "messages-per-stream": MessagesPerStream,
    "streams-per-batch": StreamsPerBatch,
    "history": History,
    "state-size": StateSize,
    "duplicates": Duplicates,
    "small-appends": SmallAppends,
    "ledger": LedgerSize,
    "under-policy": UnderPolicy,
}

_STATES = (50, 500, 5_000, 50_000, 300_000, 500_000)
_SHARES = (0, 1, 10, 25, 50, 75, 90, 100)
_HUNDREDS = range(100, 1_001, 100)
_ENDED = (10, 10_000, 1_000_000)

SIZES: Mapping[str, Mapping[str, Plan]] = {
    "default": {
        "messages-per-stream": Plan((1, 10, 100, 1_000, 10_000), 10_000, 5),
        "streams-per-batch": Plan((1, 10, 100, 1_000, 5_000), 1_000, 5),
        "history": Plan((0, 100, 1_000, 10_000, 100_000), 100, 15),
        "state-size": Plan(_STATES, 200, 5),
        "duplicates": Plan(_SHARES, 5_000, 5),
        "small-appends": Plan(_HUNDREDS, 10, 5),
        "ledger": Plan(_ENDED, 20, 5),
        "under-policy": Plan(_HUNDREDS, 10, 3),
    },
    "full": {
        "messages-per-stream": Plan((1, 10, 100, 1_000, 10_000, 100_000), 100_000, 5),
        "streams-per-batch": Plan((1, 10, 100, 1_000, 10_000, 100_000), 5_000, 3),
        "history": Plan((0, 100, 1_000, 10_000, 100_000, 1_000_000), 100, 15),
        "state-size": Plan(_STATES, 1_000, 5),
        "duplicates": Plan(_SHARES, 50_000, 5),
        "small-appends": Plan(_HUNDREDS, 10, 15),
        "ledger": Plan(_ENDED, 100, 15),
        "under-policy": Plan(_HUNDREDS, 10, 15),
    },
}


def run_series(name: str, plan: Plan, folder: Path) -> Curve:
    """Measure a series in a process of its own, so that it meets no memory or open files of another."""
    with own_process() as process:
        return process.submit(measure, name, plan, folder).result()


def measure(name: str, plan: Plan, folder: Path) -> Curve:
    """Measure a series in this process."""
    kind = SERIES[name]
    folder.mkdir(parents=True)
    series = kind(plan, folder)
    series.prepare()
    curve = Curve(name, kind.title, kind.quantity, kind.most)
    place = folder / "counted"
    for size, cost in series.turn(place, counted=True):
        curve.points.append(Point(size, size if kind.work_is_size else 1, cost))
    shutil.rmtree(place)
    for number in range(plan.turns):
        place = folder / f"turn-{number}"
        for point, (_, cost) in zip(curve.points, series.turn(place, counted=False), strict=True):
            point.timed.append(cost)
        shutil.rmtree(place)
    return curve
