"""The catalogue: what is explored, within which bounds; the quick part of it with every run of the tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.model.explorer import explore
from tests.model.facts import Scenario
from tests.model.mistakes import (
    batches,
    delivery,
    draws,
    illustrated,
    outboxes,
    protocol,
    refusals,
    tokens,
    truncation,
    two_passes,
)
from tests.model.reduction import Reduction
from tests.model.report import Report
from tests.model.scenarios import eviction, refused_entities
from tests.model.scenarios import illustrated as pictures
from tests.model.scenarios import refusals as refused
from tests.model.scenarios import two_passes as passes
from tests.model.scenarios.batches import ATTEMPTS, BATCHES, IN_PARTS
from tests.model.scenarios.deduplication_store import with_store
from tests.model.scenarios.delivery import IN_TURN, at_least_once, at_most_once, in_redis, in_slow_redis
from tests.model.scenarios.outbox import outbox
from tests.model.scenarios.state_based import MIXED, RUNS, Limit, StateBasedScenario, deliver, messages
from tests.model.scenarios.tokens import tokens as with_tokens
from tests.model.scenarios.truncation import SMALL_STEPS, long_ago, old, truncated_beside
from tests.model.scribe import count, two_handlers, write
from tests.model.world import Bounds

MISTAKES = (
    *draws.MISTAKES,
    *protocol.MISTAKES,
    *batches.MISTAKES,
    *refusals.MISTAKES,
    *truncation.MISTAKES,
    *outboxes.OUTBOX,
    *outboxes.DEDUPLICATION_STORE,
    *tokens.MISTAKES,
    *illustrated.MISTAKES,
    *delivery.MISTAKES,
    *two_passes.MISTAKES,
)


@dataclass(frozen=True, slots=True)
class Check:
    """A scenario and its bounds. A quick one takes a second or two."""

    scenario: Scenario
    bounds: Bounds
    is_quick: bool = False
    reduction: Reduction | None = None

    def explore(self) -> Report:
        """Walk it."""
        return explore(self.scenario, self.bounds, self.reduction)


_REDUCED, _TIMELESS = Reduction(), Reduction(timeless=True)


_BEGUN = StateBasedScenario(
    "2 messages for a book with lines", messages("x", "y").jobs, [deliver(write("a"))]
)
_COUNTED = StateBasedScenario(
    "a message that changes nothing, and one that does", [deliver(count("c")), deliver(write("x"))]
)
_HANDLERS = StateBasedScenario("1 message for 2 handlers, 2 copies", [deliver(write("x"), 2, two_handlers)])
_IN_RUNS = StateBasedScenario(
    "2 messages, 2 copies, each version in a row", messages("x", "y", copies=2).jobs, limits=[*RUNS]
)
_IN_PAGES = StateBasedScenario(
    "2 messages for a book with lines, a row in each page",
    messages("x", "y").jobs,
    [deliver(write("a"))],
    limits=[*RUNS, *SMALL_STEPS],
)
STATE_BASED = (
    Check(messages("x"), Bounds(1, 2, 1), is_quick=True),
    Check(messages("x", copies=2), Bounds(1, 2, 1), is_quick=True),
    Check(messages("x", copies=2), Bounds(2, 2, 1), is_quick=True),
    Check(messages("x", copies=3), Bounds(3, 1), is_quick=True),
    Check(messages("x", copies=3), Bounds(3, 1, 1)),
    Check(messages("x", copies=2), Bounds(2, 1, 2)),
    Check(messages("x", "y"), Bounds(2, 1), is_quick=True),
    Check(messages("x", "y"), Bounds(2, 1, 1)),
    Check(messages("x", "y"), Bounds(2, 1, 0, cuts=1)),
    Check(messages("x", copies=2), Bounds(2, 0, 1, cuts=1), is_quick=True),
    Check(messages("x", "y", copies=2), Bounds(2, 1)),
    Check(messages("x", "y", copies=2), Bounds(2, 1, 1)),
    Check(messages("x", "y", "z"), Bounds(3)),
    Check(messages("x", "y", "z"), Bounds(3, 1)),
    Check(_BEGUN, Bounds(2, 1, 1)),
    Check(_COUNTED, Bounds(2, 1), is_quick=True),
    Check(_COUNTED, Bounds(2, 1, 1)),
    Check(_HANDLERS, Bounds(2, 1), is_quick=True),
    Check(_HANDLERS, Bounds(2, 1, 1)),
    Check(_IN_RUNS, Bounds(2, 1)),
    Check(protocol.FILLED, Bounds(2, 1), is_quick=True),
    Check(protocol.FILLED, Bounds(2, 1, 1)),
    Check(_IN_PAGES, Bounds(2, 1)),
    Check(ATTEMPTS, Bounds(2, 1), is_quick=True),
    Check(ATTEMPTS, Bounds(2, 0, 1)),
    Check(ATTEMPTS, Bounds(2, 0, 0, cuts=1)),
    Check(IN_PARTS, Bounds(2, 1)),
    Check(BATCHES, Bounds(2), is_quick=True),
    Check(BATCHES, Bounds(2, 1)),
)

REFUSALS = (
    Check(refused.SINGLE, Bounds(2, 1)),
    Check(refused.SINGLE, Bounds(2, 1, 1)),
    Check(refused.SINGLE, Bounds(2, 0, 0, cuts=1)),
    Check(refused.REUSED, Bounds(2, 1), is_quick=True),
    Check(refused.BATCH, Bounds(1, 2, 1)),
    Check(refused.ATTEMPTS, Bounds(2, 1)),
    Check(refused.IN_PARTS, Bounds(1, 2), is_quick=True),
    Check(refused.IN_PARTS, Bounds(2)),
    Check(refused.FULL, Bounds(1, 2), is_quick=True),
    Check(refused.FULL, Bounds(2)),
    Check(refused.BEYOND, Bounds(1, 2)),
    Check(refused.BATCHES, Bounds(1, 1), is_quick=True),
    Check(refused.BATCHES, Bounds(2)),
    Check(refused.BESIDE, Bounds(2, 1)),
    Check(refused.REDELIVERED, Bounds(2, 1), is_quick=True),
    Check(refused.REDRIVEN_TWICE, Bounds(2)),
    Check(refused.WAITING, Bounds(2)),
    Check(refused.MENDED, Bounds(2, 1), is_quick=True),
    Check(refused.OPEN, Bounds(1, 1)),
    Check(refused.PARKING, Bounds(2)),
    Check(refused.PARKED, Bounds(1, 1), is_quick=True),
    Check(refused.PARKED, Bounds(2, 1)),
    Check(refused.STILL_PARKED, Bounds(1, 1), is_quick=True),
    Check(refused.STILL_PARKED, Bounds(2)),
    Check(refused.TRUNCATED, Bounds(1, 1), is_quick=True),
    Check(refused.TRUNCATED, Bounds(2)),
    Check(refused.TRUNCATED_IN_ROWS, Bounds(1, 1)),
    Check(refused.CUT_AND_PARKED, Bounds(1, 1)),
    Check(refused.LATE, Bounds(1, 1), is_quick=True),
    *(Check(scenario, Bounds(1, 2)) for scenario in refused_entities.BATCH),
    *(Check(scenario, Bounds(1, 1), is_quick=True) for scenario in refused_entities.SINGLE),
    *(Check(scenario, Bounds(1, 1)) for scenario in refused_entities.REDRIVEN),
    *(Check(scenario, Bounds(2, 1)) for scenario in refused_entities.SINGLE[:1]),
    *(Check(scenario, Bounds(2)) for scenario in refused_entities.SINGLE[1:2]),
    Check(refused_entities.SINGLE[0], Bounds(1, 0, 0, cuts=1)),
)

_LATE_AND_NEW = [deliver(old("a")), deliver(write("x"))]


def _beside(where: str, limits: Sequence[Limit]) -> Scenario:
    return truncated_beside(
        f"a late copy and a message beside truncation, {where}",
        *_LATE_AND_NEW,
        earlier=long_ago(*"abc"),
        limits=limits,
    )


_IN_TAIL, _IN_ROWS, _IN_BOTH = (
    _beside("versions in the tail", []),
    _beside("each version in a row", RUNS),
    _beside("versions in rows and in the tail", MIXED),
)
_STEPWISE = truncated_beside(
    "a late copy beside truncation in small steps",
    deliver(old("a")),
    earlier=long_ago(*"abc"),
    limits=[*RUNS, *SMALL_STEPS],
)
_STEPWISE_NEW = truncation.IN_STEPS

TRUNCATION = (
    Check(truncation.LATE, Bounds(2, 1, 1), is_quick=True),
    Check(truncation.LATE_IN_ROWS, Bounds(2, 1), is_quick=True),
    Check(truncation.TWICE, Bounds(2, 1), is_quick=True),
    Check(truncation.UNPUBLISHED, Bounds(2, 1)),
    Check(_IN_TAIL, Bounds(2, 1), is_quick=True),
    Check(_IN_TAIL, Bounds(2, 1, 1)),
    Check(_IN_ROWS, Bounds(2, 1)),
    Check(_IN_ROWS, Bounds(2, 0, 1)),
    Check(_IN_BOTH, Bounds(2, 1)),
    Check(_IN_BOTH, Bounds(2, 0, 1)),
    Check(_STEPWISE, Bounds(2, 1), is_quick=True),
    Check(_STEPWISE, Bounds(2, 1, 1)),
    Check(_STEPWISE_NEW, Bounds(2, 1)),
    Check(truncation.DIED, Bounds(2, 1)),
    Check(truncation.CONSUMED, Bounds(1, 1), is_quick=True),
    Check(truncation.CONSUMED, Bounds(2, 1)),
)

OUTBOX = (
    Check(outbox("x"), Bounds(1, 2, 1), is_quick=True),
    Check(outbox("x", copies=2), Bounds(2, 2, 1)),
    Check(outbox("x", copies=3), Bounds(3, 1)),
    Check(outbox("x", copies=2), Bounds(2, 0, 1, cuts=1), is_quick=True),
    Check(outbox("x", swept=True), Bounds(2, 1, 1), is_quick=True),
    Check(outbox("x", "y"), Bounds(2, 1), is_quick=True),
    Check(outbox("x", "y"), Bounds(2, 1, 1)),
    Check(outbox("x", "y", copies=2), Bounds(2, 1)),
)

DEDUPLICATION_STORE = (
    Check(with_store("x"), Bounds(1, 2, 1), is_quick=True),
    Check(with_store("x", copies=2), Bounds(2, 1), is_quick=True),
    Check(with_store("x", copies=2), Bounds(2, 2, 1)),
    Check(with_store("x", copies=3), Bounds(3, 1)),
    Check(with_store("x", copies=2), Bounds(1, 1, 1, cuts=1), is_quick=True),
    Check(with_store("x", swept=True), Bounds(2, 1), is_quick=True),
    Check(with_store("x", "y"), Bounds(2, 1)),
    Check(with_store("x", "y", copies=2), Bounds(2, 1)),
)

TOKENS = (
    Check(with_tokens("x"), Bounds(1, 1), is_quick=True),
    Check(with_tokens("x"), Bounds(1, 2, 1)),
    Check(with_tokens("x", copies=2), Bounds(2)),
    Check(with_tokens("x", copies=2), Bounds(2, 1), is_quick=True, reduction=_TIMELESS),
    Check(with_tokens("x", copies=2), Bounds(2, 2, 1), reduction=_TIMELESS),
    Check(with_tokens("x", copies=3), Bounds(3, 1), reduction=_TIMELESS),
    Check(with_tokens("x"), Bounds(1, 1, 0, cuts=1), is_quick=True),
    Check(with_tokens("x"), Bounds(1, 1, 1, cuts=1)),
    Check(with_tokens("x", swept=True), Bounds(1, 1), is_quick=True),
    Check(with_tokens("x", swept=True), Bounds(2, 1), reduction=_REDUCED),
    Check(with_tokens("x", "y"), Bounds(2)),
    Check(with_tokens("x", "y", copies=2), Bounds(2, 1), reduction=_REDUCED),
)

PICTURES = (
    Check(pictures.illustrated("x"), Bounds(1, 2), is_quick=True),
    Check(pictures.illustrated("x"), Bounds(1, 1, 1), is_quick=True),
    Check(pictures.illustrated("x"), Bounds(1, 1, 0, cuts=1), is_quick=True),
    Check(pictures.illustrated("x", swept=True), Bounds(1, 1), is_quick=True),
    Check(pictures.ATTEMPTS, Bounds(1, 1), is_quick=True),
    Check(pictures.SWEPT, Bounds(1, 1), is_quick=True),
    Check(pictures.illustrated("x"), Bounds(1, 2, 1)),
    Check(pictures.illustrated("x", copies=2), Bounds(2, 1)),
    Check(pictures.illustrated("x", "y"), Bounds(2)),
    Check(pictures.illustrated("x", swept=True), Bounds(2, 1)),
    Check(pictures.illustrated("x", swept=True), Bounds(1, 1, 1)),
    Check(pictures.SWEPT, Bounds(2, 1)),
    Check(pictures.SWEPT, Bounds(1, 1, 0, cuts=1)),
    Check(pictures.BESIDE, Bounds(2)),
)

_ATTEMPTS, _BATCHES, _BESIDE = passes.ATTEMPTS, passes.BATCHES, passes.BESIDE

TWO_PASSES = (
    *(Check(scenario, Bounds(1, 2), is_quick=True) for scenario in _ATTEMPTS),
    *(Check(scenario, Bounds(1, 1), is_quick=True) for scenario in _BATCHES),
    *(Check(scenario, Bounds(1, 1), is_quick=True) for scenario in _BESIDE),
    *(Check(scenario, Bounds(2, 1)) for scenario in _ATTEMPTS[:2]),
    *(Check(scenario, Bounds(2)) for scenario in _BATCHES[:2]),
    *(Check(scenario, Bounds(2, 1, 1)) for scenario in _BESIDE[:1]),
    *(Check(scenario, Bounds(2, 1)) for scenario in _BESIDE[1:2]),
    Check(_BESIDE[2], Bounds(1, 2)),
)

EVICTION = (
    Check(eviction.OUTBOX, Bounds(2, 1), is_quick=True, reduction=_REDUCED),
    Check(eviction.STORE, Bounds(2, 1), is_quick=True, reduction=_REDUCED),
)

DELIVERY = (
    Check(at_most_once(2), Bounds(2, 2)),
    Check(at_most_once(2), Bounds(2, 2, 1)),
    Check(at_most_once(3), Bounds(3, 1), is_quick=True),
    Check(at_most_once(2), Bounds(1, 1, 1, cuts=1), is_quick=True),
    Check(at_least_once(2), Bounds(2, 1), is_quick=True),
    Check(at_least_once(2), Bounds(2, 2)),
    Check(at_least_once(2), Bounds(2, 0, 1), is_quick=True),
    Check(at_least_once(2), Bounds(2, 1, 1)),
    Check(at_least_once(3), Bounds(3)),
    Check(at_least_once(2), Bounds(1, 1, 1, cuts=1), is_quick=True),
)

DELIVERY_IN_REDIS = (
    Check(at_most_once(2, keys=in_redis), Bounds(2, 2, 1)),
    Check(at_most_once(3, keys=in_redis), Bounds(3, 1), is_quick=True),
    Check(at_most_once(2, keys=in_redis), Bounds(1, 1, 1, cuts=1), is_quick=True),
    Check(at_least_once(2, keys=in_redis), Bounds(2, 1), is_quick=True),
    Check(at_least_once(2, keys=in_redis), Bounds(2, 2)),
    Check(at_least_once(2, keys=in_redis), Bounds(2, 0, 1), is_quick=True),
    Check(at_least_once(2, keys=in_redis), Bounds(2, 1, 1)),
    Check(at_least_once(3, keys=in_redis), Bounds(3), is_quick=True),
    Check(at_least_once(2, keys=in_redis), Bounds(1, 1, 1, cuts=1), is_quick=True),
    Check(at_least_once(2, IN_TURN, in_slow_redis), Bounds(2, 1), is_quick=True),
    Check(at_least_once(2, keys=in_slow_redis), Bounds(2, 2)),
    Check(at_least_once(2, keys=in_slow_redis), Bounds(2, 1, 1)),
    Check(at_least_once(3, keys=in_slow_redis), Bounds(3)),
)

CHECKS = (
    *STATE_BASED,
    *REFUSALS,
    *TRUNCATION,
    *OUTBOX,
    *DEDUPLICATION_STORE,
    *EVICTION,
    *TOKENS,
    *PICTURES,
    *TWO_PASSES,
    *DELIVERY,
    *DELIVERY_IN_REDIS,
)

SAMPLES = (
    (messages("w", "x", "y", "z", copies=3), Bounds(4, 4, 3)),
    (
        truncated_beside(
            "4 late copies and 3 messages beside truncation",
            *[deliver(old(line), 2) for line in "ad"],
            *messages("x", "y", "z").jobs,
            earlier=long_ago(*"abcde"),
            limits=MIXED,
        ),
        Bounds(4, 4, 3),
    ),
    (refused.ALL_AT_ONCE, Bounds(3, 3, 2)),
    (outbox("w", "x", "y", "z", copies=3), Bounds(4, 4, 3)),
    (with_tokens("x", copies=2), Bounds(2, 2, 1)),
)
"""Bounds that are too far for walking everything: random schedules only."""
