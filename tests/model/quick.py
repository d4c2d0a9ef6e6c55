"""The quick explorations, each done once in a run of the tests, however many tests look at its report."""

from __future__ import annotations

from functools import cache

from tests.model.catalogue import CHECKS, MISTAKES, Check
from tests.model.report import Report

QUICK = [number for number, check in enumerate(CHECKS) if check.is_quick]


@cache
def report_of(number: int) -> Report:
    """Return the report of a check, by its place in the catalogue."""
    return CHECKS[number].explore()


@cache
def found_with(name: str) -> Report:
    """Return the report of looking for a planted mistake."""
    return next(mistake for mistake in MISTAKES if mistake.name == name).look_for()


def name(number: int) -> str:
    """Return what tests call a check."""
    check: Check = CHECKS[number]
    bounds = check.bounds
    return f"{check.scenario.name}-{bounds.workers}-{bounds.crashes}-{bounds.losses}-{bounds.cuts}"
