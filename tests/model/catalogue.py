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
from tests.model.mistakes import Mistake
from tests.model.reduction import Reduction
from tests.model.scenarios import delivery, entities
from tests.model.scenarios import pictures as drawn
from tests.model.scenarios import refusals as refused
from tests.model.scenarios import state_based as plain
from tests.model.scenarios import truncation as cut
from tests.model.scenarios import two_passes as passes
from tests.model.scenarios.delivery import IN_TURN, at_least_once, at_most_once, in_redis, in_slow_redis
from tests.model.scenarios.entities import OUTBOX, STORE, outbox, tokens, with_store
from tests.model.scenarios.state_based import deliver, messages, state_based
from tests.model.world import Bounds, Report

MISTAKES = [
    mistake
    for module in (plain, cut, refused, entities, passes, drawn, delivery)
    for mistake in module.MISTAKES
]


@dataclass(frozen=True, slots=True)
class Check:
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


def _walks(scenario: Scenario, *walks: str, reduction: Reduction | None = None) -> Iterator[Check]:
    """Yield the walks of a scenario, each with its numbers of workers, crashes, lost answers and power cuts.

    Tests walk the `quick` ones, which take about a second, and the `tested` ones, which take some seconds.
    """
    for walk in walks:
        kind, *bounds = walk.split()
        is_quick = kind == "quick"
        yield Check(scenario, Bounds(*map(int, bounds)), is_quick, is_quick or kind == "tested", reduction)


def _walks_of(scenarios: Sequence[Scenario], *walks: str) -> Iterator[Check]:
    for scenario in scenarios:
        yield from _walks(scenario, *walks)


_REDUCED, _TIMELESS = Reduction(), Reduction(timeless=True)
_HANDLERS = state_based("1 message for 2 handlers, 2 copies", [deliver(write("x"), 2, two_handlers)])
_IN_RUNS = replace(
    messages("x", "y", copies=2), name="2 messages, 2 copies, each version in a row", limits=plain.RUNS
)
_IN_PAGES = replace(
    plain.BEGUN, name=f"{plain.BEGUN.name}, a row in each page", limits=[*plain.RUNS, *cut.SMALL_STEPS]
)
_IN_TAIL = cut.late_and_new("versions in the tail", [])
_IN_ROWS = cut.late_and_new("each version in a row", plain.RUNS)
_IN_BOTH = cut.late_and_new("versions in rows and in the tail", plain.MIXED)

TRUNCATION = (
    *_walks(cut.LATE, "quick 2 1 1"),
    *_walks(cut.LATE_IN_ROWS, "quick 2 1"),
    *_walks(cut.TWICE, "quick 2 1"),
    *_walks(cut.UNPUBLISHED, "long 2 1"),
    *_walks(_IN_TAIL, "tested 2 1", "long 2 1 1"),
    *_walks(_IN_ROWS, "long 2 1", "long 2 0 1"),
    *_walks(_IN_BOTH, "long 2 1", "long 2 0 1"),
    *_walks(cut.LATE_IN_STEPS, "quick 2 1", "long 2 1 1"),
    *_walks(cut.IN_STEPS, "long 2 1"),
    *_walks(cut.DIED, "long 2 1"),
    *_walks(cut.CONSUMED, "quick 1 1", "long 2 1"),
)

CHECKS = (
    *_walks(messages("x"), "quick 1 2 1"),
    *_walks(messages("x", copies=2), "quick 1 2 1", "tested 2 2 1", "long 2 1 2", "quick 2 0 1 1"),
    *_walks(messages("x", copies=3), "tested 3 1", "long 3 1 1"),
    *_walks(messages("x", "y"), "quick 2 1", "long 2 1 1", "long 2 1 0 1"),
    *_walks(messages("x", "y", copies=2), "long 2 1", "long 2 1 1"),
    *_walks(messages("x", "y", "z"), "long 3", "long 3 1"),
    *_walks(plain.BEGUN, "long 2 1 1"),
    *_walks(plain.COUNTED, "quick 2 1", "long 2 1 1"),
    *_walks(_HANDLERS, "quick 2 1", "long 2 1 1"),
    *_walks(_IN_RUNS, "long 2 1"),
    *_walks(plain.FILLED, "quick 2 1", "long 2 1 1"),
    *_walks(_IN_PAGES, "long 2 1"),
    *_walks(plain.ATTEMPTS, "quick 2 1", "long 2 0 1", "long 2 0 0 1"),
    *_walks(plain.IN_PARTS, "long 2 1"),
    *_walks(plain.BATCHES, "tested 2", "long 2 1"),
    # Refusals
    *_walks(refused.SINGLE, "long 2 1", "long 2 1 1", "long 2 0 0 1"),
    *_walks(refused.REUSED, "quick 2 1"),
    *_walks(refused.BATCH, "long 1 2 1"),
    *_walks(refused.ATTEMPTS, "long 2 1"),
    *_walks(refused.IN_PARTS, "quick 1 2", "long 2"),
    *_walks(refused.FULL, "quick 1 2", "long 2"),
    *_walks(refused.BEYOND, "long 1 2"),
    *_walks(refused.BATCHES, "quick 1 1", "long 2"),
    *_walks(refused.BESIDE, "long 2 1"),
    *_walks(refused.REDELIVERED, "quick 2 1"),
    *_walks(refused.REDRIVEN_TWICE, "long 2"),
    *_walks(refused.WAITING, "long 2"),
    *_walks(refused.MENDED, "quick 2 1"),
    *_walks(refused.OPEN, "long 1 1"),
    *_walks(refused.PARKING, "long 2"),
    *_walks(refused.PARKED, "quick 1 1", "long 2 1"),
    *_walks(refused.STILL_PARKED, "quick 1 1", "long 2"),
    *_walks(refused.TRUNCATED, "quick 1 1", "long 2"),
    *_walks(refused.TRUNCATED_IN_ROWS, "long 1 1"),
    *_walks(refused.CUT_AND_PARKED, "long 1 1"),
    *_walks(refused.LATE, "quick 1 1"),
    *_walks_of(refused.ENTITIES_BATCH, "long 1 2"),
    *_walks_of(refused.ENTITIES_SINGLE, "quick 1 1"),
    *_walks_of(refused.ENTITIES_REDRIVEN, "long 1 1"),
    *_walks(refused.ENTITIES_SINGLE[0], "long 2 1", "long 1 0 0 1"),
    *_walks(refused.ENTITIES_SINGLE[1], "long 2"),
    *TRUNCATION,
    # The outbox
    *_walks(outbox("x"), "quick 1 2 1"),
    *_walks(outbox("x", copies=2), "long 2 2 1", "tested 2 0 1 1"),
    *_walks(outbox("x", copies=3), "long 3 1"),
    *_walks(outbox("x", swept=True), "quick 2 1 1"),
    *_walks(outbox("x", "y"), "quick 2 1", "long 2 1 1"),
    *_walks(outbox("x", "y", copies=2), "long 2 1"),
    # The deduplication store
    *_walks(with_store("x"), "quick 1 2 1"),
    *_walks(with_store("x", copies=2), "quick 2 1", "long 2 2 1", "quick 1 1 1 1"),
    *_walks(with_store("x", copies=3), "long 3 1"),
    *_walks(with_store("x", swept=True), "quick 2 1"),
    *_walks(with_store("x", "y"), "long 2 1"),
    *_walks(with_store("x", "y", copies=2), "long 2 1"),
    *_walks(OUTBOX.evicted(), "tested 2 1", reduction=_REDUCED),
    *_walks(STORE.evicted(), "quick 2 1", reduction=_REDUCED),
    # Tokens
    *_walks(tokens("x"), "quick 1 1", "long 1 2 1", "quick 1 1 0 1", "long 1 1 1 1"),
    *_walks(tokens("x", copies=2), "long 2"),
    *_walks(tokens("x", copies=2), "quick 2 1", "long 2 2 1", reduction=_TIMELESS),
    *_walks(tokens("x", copies=3), "long 3 1", reduction=_TIMELESS),
    *_walks(tokens("x", swept=True), "quick 1 1"),
    *_walks(tokens("x", swept=True), "long 2 1", reduction=_REDUCED),
    *_walks(tokens("x", "y"), "long 2"),
    *_walks(tokens("x", "y", copies=2), "long 2 1", reduction=_REDUCED),
    # Pictures
    *_walks(drawn.illustrated("x"), "quick 1 2", "quick 1 1 1", "quick 1 1 0 1", "long 1 2 1"),
    *_walks(drawn.illustrated("x", swept=True), "quick 1 1", "long 2 1", "long 1 1 1"),
    *_walks(drawn.ATTEMPTS, "quick 1 1"),
    *_walks(drawn.SWEPT, "quick 1 1", "long 2 1", "long 1 1 0 1"),
    *_walks(drawn.illustrated("x", copies=2), "long 2 1"),
    *_walks(drawn.illustrated("x", "y"), "long 2"),
    *_walks(drawn.BESIDE, "long 2"),
    # Batches of the algorithms with an outbox
    *_walks_of(passes.ATTEMPTS, "quick 1 2"),
    *_walks_of(passes.BATCHES, "quick 1 1"),
    *_walks_of(passes.BESIDE, "quick 1 1"),
    *_walks_of(passes.ATTEMPTS[:2], "long 2 1"),
    *_walks_of(passes.BATCHES[:2], "long 2"),
    *_walks(passes.BESIDE[0], "long 2 1 1"),
    *_walks(passes.BESIDE[1], "long 2 1"),
    *_walks(passes.BESIDE[2], "long 1 2"),
    # Deliveries
    *_walks(at_most_once(2), "long 2 2", "long 2 2 1", "quick 1 1 1 1"),
    *_walks(at_most_once(3), "quick 3 1"),
    *_walks(at_least_once(2), "quick 2 1", "long 2 2", "quick 2 0 1", "long 2 1 1", "quick 1 1 1 1"),
    *_walks(at_least_once(3), "long 3"),
    *_walks(at_most_once(2, keys=in_redis), "long 2 2 1", "quick 1 1 1 1"),
    *_walks(at_most_once(3, keys=in_redis), "quick 3 1"),
    *_walks(
        at_least_once(2, keys=in_redis), "quick 2 1", "long 2 2", "quick 2 0 1", "long 2 1 1", "quick 1 1 1 1"
    ),
    *_walks(at_least_once(3, keys=in_redis), "tested 3"),
    *_walks(at_least_once(2, IN_TURN, in_slow_redis), "quick 2 1"),
    *_walks(at_least_once(2, keys=in_slow_redis), "long 2 2", "long 2 1 1"),
    *_walks(at_least_once(3, keys=in_slow_redis), "long 3"),
)

SAMPLES = (
    (messages("w", "x", "y", "z", copies=3), Bounds(4, 4, 3)),
    (
        cut.truncated_beside(
            "4 late copies and 3 messages beside truncation",
            *[deliver(cut.old(line), 2) for line in "ad"],
            *messages("x", "y", "z").jobs,
            earlier=cut.long_ago(*"abcde"),
            limits=plain.MIXED,
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
