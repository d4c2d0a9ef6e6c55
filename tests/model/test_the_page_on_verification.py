"""docs/verification.md and README.md show the present results: rows, totals, schedule and commands."""

import re
import shlex

import pytest

from tests.model import invariants
from tests.model.__main__ import PAGE, RESULTS, check_row, main, markdown, mistake_row
from tests.model.catalogue import CHECKS, MISTAKES, TESTED, found_with, report_of
from tests.model.schedule import seed, table
from tests.support.campaigns import section

STALE = "`python -m tests.model` updates the pages"
SHOWN = "a stored message id is taken for one's own append"


@pytest.mark.parametrize("number", TESTED)
def test_it_shows_what_an_exploration_sees(number):
    row = markdown(["a"] * 9, [check_row(report_of(number))]).splitlines()[-1]

    assert row in section("explored", RESULTS).splitlines(), STALE


FIRST_TO_BREAK = {mistake.breaks: mistake.name for mistake in reversed(MISTAKES)}


@pytest.mark.parametrize(
    "mistake",
    [
        pytest.param(
            mistake,
            id=mistake.name,
            marks=[] if FIRST_TO_BREAK[mistake.breaks] == mistake.name else [pytest.mark.thorough],
        )
        for mistake in MISTAKES
    ],
)
def test_it_shows_how_each_mistake_is_found(mistake):
    row = markdown(["a"] * 4, [mistake_row(mistake, found_with(mistake.name))]).splitlines()[-1]

    assert row in section("mistakes", RESULTS).splitlines(), STALE


def test_it_has_a_row_for_each_exploration_and_each_mistake_and_counts_them():
    totals = " ".join(section("totals", PAGE).split())

    assert len(section("explored", RESULTS).splitlines()) == len(CHECKS) + 2
    assert len(section("mistakes", RESULTS).splitlines()) == len(MISTAKES) + 2
    assert f"0 violations. {len(MISTAKES)} mistakes planted, {len(MISTAKES)} found." in totals


def test_its_schedule_is_the_one_that_is_found():
    mistake = next(each for each in MISTAKES if each.name == SHOWN)
    report = found_with(SHOWN)
    assert report.violation is not None

    text = PAGE.read_text()
    assert table(mistake.replay(report)) in text
    assert seed(mistake.scenario, report.violation.schedule) in text
    assert f'--mistake "{SHOWN}"' in text


def test_its_commands_do_what_it_says(capsys):
    commands = re.findall(r"^\.venv/bin/python -m tests\.model (.*)$", PAGE.read_text(), re.MULTILINE)
    assert len(commands) == 2

    for command in commands:
        assert main(shlex.split(command)) == 0

    shown = capsys.readouterr().out
    assert "NoGhost" in shown
    assert shown.endswith("Nothing is broken.\n")


def test_it_explains_every_invariant():
    explained = re.findall(r"^\| (\w+) \| ", RESULTS.read_text(), re.MULTILINE)

    held = {invariant.name for check in CHECKS for invariant in check.scenario.invariants}
    names = held | {"NoError", "Readable"}
    assert {invariant.name for invariant in invariants.ALL} < held
    assert names <= set(explained)
    assert names == {mistake.breaks for mistake in MISTAKES}, "each of them is broken by a planted mistake"
