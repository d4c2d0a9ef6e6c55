"""`python -m tests.model`: explore everything, print what was seen, and write it into docs/verification.md.

Exit code 0 when nothing is broken and every planted mistake is found, 1 otherwise, 2 for wrong usage.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from tests.model.catalogue import CHECKS, MISTAKES, SAMPLES
from tests.model.explorer import Violation, explore
from tests.model.facts import Scenario
from tests.model.mistakes.mistake import Mistake
from tests.model.pages import PAGE, rewrite
from tests.model.randomly import sample
from tests.model.schedule import replay, seed, table
from tests.model.totals import CHECKED, PLANTED, Totals, check_row, markdown, mistake_row, sample_row

SCHEDULES = 2_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Explore, report, and return the exit code."""
    options = _options().parse_args(arguments)
    if options.mistake:
        return _show(options.mistake)
    totals = Totals()
    broken = _check(totals, rewrites=not options.dry)
    _plant(totals, rewrites=not options.dry)
    print(totals.sentence())
    if not options.dry:
        rewrite("totals", totals.sentence())
        print(f"Written to {PAGE.name}.")
    return 1 if broken or totals.found < totals.planted else 0


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.model", description="Walk every interleaving of the shipped code."
    )
    parser.add_argument("--dry", action="store_true", help="leave docs/verification.md as it is")
    parser.add_argument(
        "--mistake", metavar="NAME", help="plant one mistake and print the shortest schedule that shows it"
    )
    return parser


def _check(totals: Totals, *, rewrites: bool) -> bool:
    """Explore all scenarios, and draw random schedules beyond the bounds. Say whether something is broken."""
    rows, broken = [], False
    for check in CHECKS:
        report = explore(check.scenario, check.bounds)
        totals.add(report)
        rows.append(_printed(check_row(report)))
        broken |= _told(check.scenario, report.violation)
    samples = []
    for scenario, bounds in SAMPLES:
        drawn = sample(scenario, bounds, SCHEDULES)
        samples.append(_printed(sample_row(drawn)))
        totals.violations += drawn.violation is not None
        broken |= _told(scenario, drawn.violation)
    if rewrites:
        rewrite("explored", markdown(CHECKED, rows))
        rewrite("sampled", markdown(CHECKED, samples))
    return broken


def _plant(totals: Totals, *, rewrites: bool) -> None:
    rows = []
    for mistake in MISTAKES:
        report = mistake.look_for()
        totals.add_mistake(mistake, report)
        rows.append(_printed(mistake_row(mistake, report)))
    if rewrites:
        rewrite("mistakes", markdown(PLANTED, rows))


def _printed(row: tuple[str, ...]) -> tuple[str, ...]:
    print("  ".join(row), flush=True)
    return row


def _told(scenario: Scenario, violation: Violation | None) -> bool:
    """Print the schedule of a violation, if there is one."""
    if violation is None:
        return False
    words = seed(scenario, violation.schedule)
    print(table(replay(scenario, words)), f"Seed: {words}", sep="\n")
    return True


def _show(name: str) -> int:
    found = [mistake for mistake in MISTAKES if mistake.name == name]
    if not found:
        print(f"There is no mistake {name!r}. There are:", *[each.name for each in MISTAKES], sep="\n  ")
        return 2
    (mistake,) = found
    return _shown(mistake)


def _shown(mistake: Mistake) -> int:
    report = mistake.look_for()
    if report.violation is None:
        print(f"Nothing is broken in {report.worlds:,} states.")
        return 1
    print(table(mistake.replay(report)))
    print(f"\nSeed: {seed(mistake.scenario, report.violation.schedule)}")
    print(f"{report.worlds:,} states explored.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
