"""Turns: all sizes once, then all once more; the first turn warms up and counts requests, the others are timed."""

from __future__ import annotations

import shutil
from pathlib import Path

from benchmarks.growth.catalogue import SERIES
from benchmarks.growth.curve import Curve, Point
from benchmarks.growth.series import Plan
from benchmarks.processes import own_process


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
