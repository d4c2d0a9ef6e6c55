"""`python -m tests.model`: explore everything, print the results, and write them to README.md and docs/verification.md.

Exit code 0 if nothing is broken and every planted mistake is found, 1 otherwise, 2 for a usage error.
"""

import argparse
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from textwrap import fill

from tests.model.catalogue import CHECKS, MISTAKES, SAMPLES, reports
from tests.model.facts import Scenario
from tests.model.histories import Site, shipped
from tests.model.mistakes import Mistake
from tests.model.reduction import REDUCED
from tests.model.schedule import replay, sample, seed, table
from tests.model.world import Kind, Report, Violation
from tests.support.campaigns import ROOT, rewrite

SCHEDULES = 2_000
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


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options().parse_args(arguments)
    if options.replay is not None:
        return _replay(options.scenario, options.replay)
    if options.mistake is not None:
        return _show(options.mistake)
    return _explore(rewrites=not options.dry)


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.model", description="Walk every interleaving of the shipped code."
    )
    parser.add_argument("--dry", action="store_true", help="leave the pages unchanged")
    parser.add_argument("--mistake", metavar="NAME", help="plant a mistake and show its shortest schedule")
    parser.add_argument("--replay", metavar="SEED", help="replay one schedule of a --scenario")
    parser.add_argument("--scenario", metavar="NAME", help="the scenario of the seed")
    return parser


def _explore(*, rewrites: bool) -> int:
    totals = Totals()
    broken = _check(totals, rewrites=rewrites)
    _plant(totals, rewrites=rewrites)
    print(totals.sentence())
    if rewrites:
        rewrite("totals", fill(totals.sentence(), 120), PAGE)
        print(f"Written to docs/{PAGE.name} and tests/model/{RESULTS.name}.")
    return 1 if broken or totals.found < totals.planted else 0


def _check(totals: Totals, *, rewrites: bool) -> bool:
    """Explore all scenarios, and random schedules beyond the bounds. Return whether something is broken."""
    rows, broken = [], False
    for check, report in zip(CHECKS, reports(range(len(CHECKS))), strict=True):
        totals.add(report)
        rows.append(_printed(check_row(report)))
        broken |= _told(check.scenario, report.violation)
    samples = []
    for scenario, bounds in SAMPLES:
        drawn = sample(scenario, bounds, SCHEDULES)
        samples.append(_printed(check_row(drawn)))
        totals.violations += drawn.violation is not None
        broken |= _told(scenario, drawn.violation)
    if rewrites:
        rewrite("explored", markdown(CHECKED, rows), RESULTS)
        rewrite("sampled", markdown(CHECKED, samples), RESULTS)
    return broken


def _plant(totals: Totals, *, rewrites: bool) -> None:
    rows = []
    for mistake in MISTAKES:
        report = mistake.look_for()
        totals.add_mistake(mistake, report)
        rows.append(_printed(mistake_row(mistake, report)))
    if rewrites:
        rewrite("mistakes", markdown(PLANTED, rows), RESULTS)


def _printed(row: tuple[str, ...]) -> tuple[str, ...]:
    print("  ".join(row), flush=True)
    return row


def _told(scenario: Scenario, violation: Violation | None) -> bool:
    """Print the schedule of a violation. Return whether there is one."""
    if violation is None:
        return False
    words = seed(scenario, violation.schedule)
    print(table(replay(scenario, words)), f"Seed: {words}", f"Scenario: {scenario.name}", sep="\n")
    return True


def _replay(name: str | None, words: str) -> int:
    explored = [*[check.scenario for check in CHECKS], *[mistake.scenario for mistake in MISTAKES]]
    scenarios = {scenario.name: scenario for scenario in explored}
    if name not in scenarios:
        return _unknown("scenario", name, scenarios)
    try:
        replayed = replay(scenarios[name], words)
    except ValueError as error:
        print(f"{error} README.md lists the words.")
        return 2
    print(table(replayed))
    return 1 if replayed.problem else 0


def _show(name: str) -> int:
    mistakes = {each.name: each for each in MISTAKES}
    if name not in mistakes:
        return _unknown("mistake", name, mistakes)
    mistake = mistakes[name]
    report = mistake.look_for()
    if report.violation is None:
        print(f"Nothing is broken in {report.worlds:,} states.")
        return 1
    print(table(mistake.replay(report)))
    print(f"\nSeed: {seed(mistake.scenario, report.violation.schedule)}")
    print(f"Scenario: {mistake.scenario.name}. {report.worlds:,} states explored.")
    return 0


def _unknown(what: str, name: str | None, known: Iterable[str]) -> int:
    print(f"There is no {what} {name!r}. There are:", *known, sep="\n  ")
    return 2


if __name__ == "__main__":
    sys.exit(main())
