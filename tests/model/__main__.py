"""`python -m tests.model`: explore everything, print the results, and write them to README.md and docs/verification.md.

Exit code 0 if nothing is broken and every planted mistake is found, 1 otherwise, 2 for a usage error.
"""

import argparse
import sys
from collections.abc import Iterable, Sequence
from textwrap import fill

from tests.model.catalogue import CHECKS, MISTAKES, SAMPLES, reports
from tests.model.facts import Scenario
from tests.model.schedule import replay, sample, seed, table
from tests.model.totals import (
    CHECKED,
    PAGE,
    PLANTED,
    RESULTS,
    Totals,
    check_row,
    markdown,
    mistake_row,
)
from tests.model.world import Violation
from tests.support.campaigns import rewrite

SCHEDULES = 2_000


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
