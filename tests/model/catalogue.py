"""The catalogue: what is explored, within which bounds; the quick part of it with every run of the tests."""

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from multiprocessing import get_context

import pytest

from tests.model.book import two_handlers, write
from tests.model.explorer import explore
from tests.model.facts import Scenario
from tests.model.mistakes import delivery, outboxes, pictures, refusals
from tests.model.mistakes import state_based as of_state_based
from tests.model.mistakes.mistake import Mistake
from tests.model.reduction import Reduction
from tests.model.scenarios import pictures as drawn
from tests.model.scenarios import refusals as refused
from tests.model.scenarios import truncation as cut
from tests.model.scenarios import two_passes as passes
from tests.model.scenarios.delivery import IN_TURN, at_least_once, at_most_once, in_redis, in_slow_redis
from tests.model.scenarios.entities import OUTBOX, STORE, outbox, tokens, with_store
from tests.model.scenarios.state_based import (
    ATTEMPTS,
    BATCHES,
    BEGUN,
    COUNTED,
    FILLED,
    IN_PARTS,
    MIXED,
    RUNS,
    deliver,
    messages,
    state_based,
)
from tests.model.world import Bounds, Report

MISTAKES = (
    *of_state_based.MISTAKES,
    *refusals.MISTAKES,
    *outboxes.FAMILIES,
    *outboxes.OF_BATCHES,
    *pictures.MISTAKES,
    *delivery.MISTAKES,
)


@dataclass(frozen=True, slots=True)
class Check:
    """A scenario and its bounds: a quick one takes a second or so, one that is tested some seconds."""

    scenario: Scenario
    bounds: Bounds
    is_quick: bool = False
    is_tested: bool = False
    reduction: Reduction | None = None

    @property
    def name(self) -> str:
        bounds = self.bounds
        return f"{self.scenario.name}-{bounds.workers}-{bounds.crashes}-{bounds.losses}-{bounds.cuts}"

    def explore(self) -> Report:
        return explore(self.scenario, self.bounds, self.reduction)


def _quick(scenario: Scenario, *bounds: int, reduction: Reduction | None = None) -> Check:
    return Check(scenario, Bounds(*bounds), is_quick=True, is_tested=True, reduction=reduction)


def _thorough(scenario: Scenario, *bounds: int, reduction: Reduction | None = None) -> Check:
    return Check(scenario, Bounds(*bounds), is_tested=True, reduction=reduction)


def _long(scenario: Scenario, *bounds: int, reduction: Reduction | None = None) -> Check:
    return Check(scenario, Bounds(*bounds), reduction=reduction)


_REDUCED, _TIMELESS = Reduction(), Reduction(timeless=True)
_HANDLERS = state_based("1 message for 2 handlers, 2 copies", [deliver(write("x"), 2, two_handlers)])
_IN_RUNS = replace(
    messages("x", "y", copies=2), name="2 messages, 2 copies, each version in a row", limits=RUNS
)
_IN_PAGES = replace(BEGUN, name=f"{BEGUN.name}, a row in each page", limits=[*RUNS, *cut.SMALL_STEPS])
_IN_TAIL = cut.late_and_new("versions in the tail", [])
_IN_ROWS = cut.late_and_new("each version in a row", RUNS)
_IN_BOTH = cut.late_and_new("versions in rows and in the tail", MIXED)

# The numbers are workers, crashes, lost answers and power cuts.
TRUNCATION = (
    _quick(cut.LATE, 2, 1, 1),
    _quick(cut.LATE_IN_ROWS, 2, 1),
    _quick(cut.TWICE, 2, 1),
    _long(cut.UNPUBLISHED, 2, 1),
    _thorough(_IN_TAIL, 2, 1),
    _long(_IN_TAIL, 2, 1, 1),
    _long(_IN_ROWS, 2, 1),
    _long(_IN_ROWS, 2, 0, 1),
    _long(_IN_BOTH, 2, 1),
    _long(_IN_BOTH, 2, 0, 1),
    _quick(cut.LATE_IN_STEPS, 2, 1),
    _long(cut.LATE_IN_STEPS, 2, 1, 1),
    _long(cut.IN_STEPS, 2, 1),
    _long(cut.DIED, 2, 1),
    _quick(cut.CONSUMED, 1, 1),
    _long(cut.CONSUMED, 2, 1),
)

CHECKS = (
    _quick(messages("x"), 1, 2, 1),
    _quick(messages("x", copies=2), 1, 2, 1),
    _thorough(messages("x", copies=2), 2, 2, 1),
    _thorough(messages("x", copies=3), 3, 1),
    _long(messages("x", copies=3), 3, 1, 1),
    _long(messages("x", copies=2), 2, 1, 2),
    _quick(messages("x", "y"), 2, 1),
    _long(messages("x", "y"), 2, 1, 1),
    _long(messages("x", "y"), 2, 1, 0, 1),
    _quick(messages("x", copies=2), 2, 0, 1, 1),
    _long(messages("x", "y", copies=2), 2, 1),
    _long(messages("x", "y", copies=2), 2, 1, 1),
    _long(messages("x", "y", "z"), 3),
    _long(messages("x", "y", "z"), 3, 1),
    _long(BEGUN, 2, 1, 1),
    _quick(COUNTED, 2, 1),
    _long(COUNTED, 2, 1, 1),
    _quick(_HANDLERS, 2, 1),
    _long(_HANDLERS, 2, 1, 1),
    _long(_IN_RUNS, 2, 1),
    _quick(FILLED, 2, 1),
    _long(FILLED, 2, 1, 1),
    _long(_IN_PAGES, 2, 1),
    _quick(ATTEMPTS, 2, 1),
    _long(ATTEMPTS, 2, 0, 1),
    _long(ATTEMPTS, 2, 0, 0, 1),
    _long(IN_PARTS, 2, 1),
    _thorough(BATCHES, 2),
    _long(BATCHES, 2, 1),
    # Refusals
    _long(refused.SINGLE, 2, 1),
    _long(refused.SINGLE, 2, 1, 1),
    _long(refused.SINGLE, 2, 0, 0, 1),
    _quick(refused.REUSED, 2, 1),
    _long(refused.BATCH, 1, 2, 1),
    _long(refused.ATTEMPTS, 2, 1),
    _quick(refused.IN_PARTS, 1, 2),
    _long(refused.IN_PARTS, 2),
    _quick(refused.FULL, 1, 2),
    _long(refused.FULL, 2),
    _long(refused.BEYOND, 1, 2),
    _quick(refused.BATCHES, 1, 1),
    _long(refused.BATCHES, 2),
    _long(refused.BESIDE, 2, 1),
    _quick(refused.REDELIVERED, 2, 1),
    _long(refused.REDRIVEN_TWICE, 2),
    _long(refused.WAITING, 2),
    _quick(refused.MENDED, 2, 1),
    _long(refused.OPEN, 1, 1),
    _long(refused.PARKING, 2),
    _quick(refused.PARKED, 1, 1),
    _long(refused.PARKED, 2, 1),
    _quick(refused.STILL_PARKED, 1, 1),
    _long(refused.STILL_PARKED, 2),
    _quick(refused.TRUNCATED, 1, 1),
    _long(refused.TRUNCATED, 2),
    _long(refused.TRUNCATED_IN_ROWS, 1, 1),
    _long(refused.CUT_AND_PARKED, 1, 1),
    _quick(refused.LATE, 1, 1),
    *(_long(scenario, 1, 2) for scenario in refused.ENTITIES_BATCH),
    *(_quick(scenario, 1, 1) for scenario in refused.ENTITIES_SINGLE),
    *(_long(scenario, 1, 1) for scenario in refused.ENTITIES_REDRIVEN),
    _long(refused.ENTITIES_SINGLE[0], 2, 1),
    _long(refused.ENTITIES_SINGLE[1], 2),
    _long(refused.ENTITIES_SINGLE[0], 1, 0, 0, 1),
    *TRUNCATION,
    # The outbox
    _quick(outbox("x"), 1, 2, 1),
    _long(outbox("x", copies=2), 2, 2, 1),
    _long(outbox("x", copies=3), 3, 1),
    _thorough(outbox("x", copies=2), 2, 0, 1, 1),
    _quick(outbox("x", swept=True), 2, 1, 1),
    _quick(outbox("x", "y"), 2, 1),
    _long(outbox("x", "y"), 2, 1, 1),
    _long(outbox("x", "y", copies=2), 2, 1),
    # The deduplication store
    _quick(with_store("x"), 1, 2, 1),
    _quick(with_store("x", copies=2), 2, 1),
    _long(with_store("x", copies=2), 2, 2, 1),
    _long(with_store("x", copies=3), 3, 1),
    _quick(with_store("x", copies=2), 1, 1, 1, 1),
    _quick(with_store("x", swept=True), 2, 1),
    _long(with_store("x", "y"), 2, 1),
    _long(with_store("x", "y", copies=2), 2, 1),
    _thorough(OUTBOX.evicted(), 2, 1, reduction=_REDUCED),
    _quick(STORE.evicted(), 2, 1, reduction=_REDUCED),
    # Tokens
    _quick(tokens("x"), 1, 1),
    _long(tokens("x"), 1, 2, 1),
    _long(tokens("x", copies=2), 2),
    _quick(tokens("x", copies=2), 2, 1, reduction=_TIMELESS),
    _long(tokens("x", copies=2), 2, 2, 1, reduction=_TIMELESS),
    _long(tokens("x", copies=3), 3, 1, reduction=_TIMELESS),
    _quick(tokens("x"), 1, 1, 0, 1),
    _long(tokens("x"), 1, 1, 1, 1),
    _quick(tokens("x", swept=True), 1, 1),
    _long(tokens("x", swept=True), 2, 1, reduction=_REDUCED),
    _long(tokens("x", "y"), 2),
    _long(tokens("x", "y", copies=2), 2, 1, reduction=_REDUCED),
    # Pictures
    _quick(drawn.illustrated("x"), 1, 2),
    _quick(drawn.illustrated("x"), 1, 1, 1),
    _quick(drawn.illustrated("x"), 1, 1, 0, 1),
    _quick(drawn.illustrated("x", swept=True), 1, 1),
    _quick(drawn.ATTEMPTS, 1, 1),
    _quick(drawn.SWEPT, 1, 1),
    _long(drawn.illustrated("x"), 1, 2, 1),
    _long(drawn.illustrated("x", copies=2), 2, 1),
    _long(drawn.illustrated("x", "y"), 2),
    _long(drawn.illustrated("x", swept=True), 2, 1),
    _long(drawn.illustrated("x", swept=True), 1, 1, 1),
    _long(drawn.SWEPT, 2, 1),
    _long(drawn.SWEPT, 1, 1, 0, 1),
    _long(drawn.BESIDE, 2),
    # Batches of the algorithms with an outbox
    *(_quick(scenario, 1, 2) for scenario in passes.ATTEMPTS),
    *(_quick(scenario, 1, 1) for scenario in passes.BATCHES),
    *(_quick(scenario, 1, 1) for scenario in passes.BESIDE),
    *(_long(scenario, 2, 1) for scenario in passes.ATTEMPTS[:2]),
    *(_long(scenario, 2) for scenario in passes.BATCHES[:2]),
    _long(passes.BESIDE[0], 2, 1, 1),
    _long(passes.BESIDE[1], 2, 1),
    _long(passes.BESIDE[2], 1, 2),
    # Deliveries
    _long(at_most_once(2), 2, 2),
    _long(at_most_once(2), 2, 2, 1),
    _quick(at_most_once(3), 3, 1),
    _quick(at_most_once(2), 1, 1, 1, 1),
    _quick(at_least_once(2), 2, 1),
    _long(at_least_once(2), 2, 2),
    _quick(at_least_once(2), 2, 0, 1),
    _long(at_least_once(2), 2, 1, 1),
    _long(at_least_once(3), 3),
    _quick(at_least_once(2), 1, 1, 1, 1),
    _long(at_most_once(2, keys=in_redis), 2, 2, 1),
    _quick(at_most_once(3, keys=in_redis), 3, 1),
    _quick(at_most_once(2, keys=in_redis), 1, 1, 1, 1),
    _quick(at_least_once(2, keys=in_redis), 2, 1),
    _long(at_least_once(2, keys=in_redis), 2, 2),
    _quick(at_least_once(2, keys=in_redis), 2, 0, 1),
    _long(at_least_once(2, keys=in_redis), 2, 1, 1),
    _thorough(at_least_once(3, keys=in_redis), 3),
    _quick(at_least_once(2, keys=in_redis), 1, 1, 1, 1),
    _quick(at_least_once(2, IN_TURN, in_slow_redis), 2, 1),
    _long(at_least_once(2, keys=in_slow_redis), 2, 2),
    _long(at_least_once(2, keys=in_slow_redis), 2, 1, 1),
    _long(at_least_once(3, keys=in_slow_redis), 3),
)

SAMPLES = (
    (messages("w", "x", "y", "z", copies=3), Bounds(4, 4, 3)),
    (
        cut.truncated_beside(
            "4 late copies and 3 messages beside truncation",
            *[deliver(cut.old(line), 2) for line in "ad"],
            *messages("x", "y", "z").jobs,
            earlier=cut.long_ago(*"abcde"),
            limits=MIXED,
        ),
        Bounds(4, 4, 3),
    ),
    (refused.ALL_AT_ONCE, Bounds(3, 3, 2)),
    (outbox("w", "x", "y", "z", copies=3), Bounds(4, 4, 3)),
    (tokens("x", copies=2), Bounds(2, 2, 1)),
)
"""Bounds that are too far for walking everything: random schedules only."""

QUICK = [number for number, check in enumerate(CHECKS) if check.is_quick]
TESTED = [
    pytest.param(
        number,
        id=check.name,
        marks=[] if check.is_quick and check.bounds.workers == 1 else [pytest.mark.thorough],
    )
    for number, check in enumerate(CHECKS)
    if check.is_tested
]
"""The checks among the tests. Those of several workers take longer."""


@cache
def report_of(number: int) -> Report:
    """Return the report of a check: it is explored once in a run of the tests, however many look at it."""
    return CHECKS[number].explore()


@cache
def found_with(name: str) -> Report:
    mistake: Mistake = next(each for each in MISTAKES if each.name == name)
    return mistake.look_for()


def reports(numbers: Sequence[int]) -> Iterator[Report]:
    """Give the reports of checks in their order; each is walked in a process that gives its memory back."""
    at_once = min(2, os.cpu_count() or 1)  # the largest walks need a few GB each
    with ProcessPoolExecutor(at_once, get_context("spawn"), max_tasks_per_child=1) as processes:
        yield from processes.map(report_of, numbers)
