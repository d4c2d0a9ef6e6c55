"""Eviction beside processing: ids of messages are forgotten while a new message comes, and its copy."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from runtime.algorithms.algorithm import AT_ONCE
from tests.model.facts import Invariant
from tests.model.scenarios import deduplication_store, outbox
from tests.model.scenarios.entities import EntityScenario, Make, deliver, evict
from tests.model.scenarios.truncation import at_that_time, old
from tests.model.scribe import write

_A_DAY = timedelta(days=1)


def _beside(name: str, make: Make, invariants: Sequence[Invariant]) -> EntityScenario:
    """Return the scenario of a message and its copy beside an eviction, after a message of long ago."""
    jobs = [deliver(make, write("x"), 2), evict(make, _A_DAY)]
    return EntityScenario(name, jobs, invariants, at_that_time([deliver(make, old("a"))]))


def _at_once(name: str, make: Make, invariants: Sequence[Invariant]) -> EntityScenario:
    """Return the scenario of a message and its copy beside an eviction that waits for no copies."""
    return EntityScenario(name, [deliver(make, write("x"), 2), evict(make, AT_ONCE)], invariants)


OUTBOX = _beside("outbox: x beside eviction; 2 copies each", outbox.make, outbox.INVARIANTS)
STORE = _beside(
    "de-duplication store: x beside eviction; 2 copies each",
    deduplication_store.make,
    deduplication_store.INVARIANTS,
)
TOO_EARLY = (
    _at_once("outbox: x evicted at once", outbox.make, outbox.INVARIANTS),
    _at_once(
        "de-duplication store: x evicted at once", deduplication_store.make, deduplication_store.INVARIANTS
    ),
)
