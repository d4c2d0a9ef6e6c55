"""The results of the checker: tables for README.md, and a line of totals for docs/verification.md."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tests.model.histories import Site
from tests.model.mistakes.mistake import Mistake
from tests.model.reduction import REDUCED
from tests.model.sources import ROOT, shipped
from tests.model.world import Kind, Report

PAGE = ROOT / "docs" / "verification.md"
RESULTS = ROOT / "tests" / "model" / "README.md"
LOST = (Kind.LOSE_CALL, Kind.LOSE_ANSWER, Kind.DELAY)


@dataclass(slots=True)
class Totals:
    executions: int = 0
    worlds: int = 0
    steps: int = 0
    crashes: int = 0
    losses: int = 0
    cuts: int = 0
    violations: int = 0
    planted: int = 0
    found: int = 0
    crash_points: set[tuple[Site, ...]] = field(default_factory=set)

    def add(self, report: Report) -> None:
        self.executions += report.executions
        self.worlds += report.worlds
        self.steps += report.steps.total()
        self.crashes += report.steps[Kind.CRASH]
        self.losses += lost(report)
        self.cuts += report.steps[Kind.CUT]
        self.violations += report.violation is not None
        self.crash_points |= {shipped(sites) for sites in report.crash_points}

    def add_mistake(self, mistake: Mistake, report: Report) -> None:
        """Count a planted mistake in; it is found when what it should break is broken."""
        self.planted += 1
        self.found += report.violation is not None and report.violation.invariant == mistake.breaks

    def sentence(self) -> str:
        return (
            f"{short(self.executions)} executions in {self.worlds:,} distinct states and {self.steps:,} steps; "
            f"{self.crashes:,} crashes at {len(self.crash_points)} crash points; {self.losses:,} lost answers; "
            f"{self.cuts:,} power cuts; {self.violations} violations. {self.planted} mistakes planted, "
            f"{self.found} found."
        )


def lost(report: Report) -> int:
    """Return how many of the steps are lost answers."""
    return sum(report.steps[kind] for kind in LOST)


def check_row(report: Report) -> tuple[str, ...]:
    bounds = report.bounds
    return (
        report.scenario,
        *[str(bound) for bound in (bounds.workers, bounds.crashes, bounds.losses, bounds.cuts)],
        f"{report.worlds:,}",
        f"{report.steps.total():,}",
        report.reduced or short(report.executions),
        "none" if report.violation is None else report.violation.problem,
    )


def mistake_row(mistake: Mistake, report: Report) -> tuple[str, ...]:
    violation = report.violation
    return (
        mistake.name,
        violation.invariant if violation else "not found",
        str(len(violation.schedule)) if violation else "",
        f"{report.worlds:,}",
    )


CHECKED = (
    "scenario",
    "workers",
    "crashes",
    "lost answers",
    "power cuts",
    "states",
    "steps",
    "executions",
    "violations",
)
PLANTED = ("mistake", "breaks", "steps of the shortest schedule", "states explored until then")


_NUMBER = re.compile(rf"[\d,.e]+|{REDUCED}.*")


def markdown(names: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return rows as a table in Markdown; what looks like a number stands on the right."""
    found = list(rows)
    right = [all(_NUMBER.fullmatch(row[column]) for row in found) for column in range(len(names))]
    lines = [names, ["---:" if each else "---" for each in right], *found]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def short(number: int) -> str:
    """Return a number, a large one with three digits and its power of ten."""
    return f"{number:,}" if number < 10**6 else f"{number:.2e}".replace("e+", "e")
