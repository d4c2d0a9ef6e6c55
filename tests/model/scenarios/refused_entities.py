"""Refusals with the algorithms that keep an outbox: letters are rows beside the entity."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from runtime.messages.envelope import Envelope
from tests.model import refusals
from tests.model.facts import Invariant
from tests.model.histories import Job
from tests.model.scenarios import deduplication_store, outbox, tokens
from tests.model.scenarios.entities import deliver
from tests.model.scenarios.two_passes import BatchScenario, Make, batch
from tests.model.scribe import reply, write


class _Algorithm(NamedTuple):
    """An algorithm: its name, what makes it, what must hold of it, and a message as it is sent to it."""

    name: str
    make: Make
    invariants: Sequence[Invariant]
    sent: Callable[[Envelope], Envelope]

    def scenario(
        self, name: str, *jobs: Job, earlier: Sequence[Job] = (), held: Sequence[Invariant]
    ) -> BatchScenario:
        """Return the scenario of jobs with a reply to a line, and with that line."""
        issued = [tokens.issued(self.sent(message)) for message in (_R, _A)] if self is _TOKENS else []
        return BatchScenario(
            f"{self.name}: {name}",
            jobs,
            [*self.invariants, *held, *refusals.OF_LETTERS],
            [*issued, *earlier],
            "r",
        )


def _as_it_is(message: Envelope) -> Envelope:
    return message


_R, _A = reply("r", to="a"), write("a")
_OUTBOX = _Algorithm("outbox", outbox.make, outbox.INVARIANTS, _as_it_is)
_STORE = _Algorithm(
    "de-duplication store", deduplication_store.make, deduplication_store.INVARIANTS, _as_it_is
)
_TOKENS = _Algorithm("tokens", tokens.make, tokens.INVARIANTS, tokens.with_first_token)
_ORDER = refusals.in_order(None, "r", "a")


def _single(algorithm: _Algorithm) -> BatchScenario:
    r, a = algorithm.sent(_R), algorithm.sent(_A)
    return algorithm.scenario(
        "a reply, 2 copies, and its line",
        deliver(algorithm.make, r, 2),
        deliver(algorithm.make, a),
        held=[refusals.REFUSED_FOR_GOOD],
    )


def _in_a_batch(algorithm: _Algorithm) -> BatchScenario:
    r, a = algorithm.sent(_R), algorithm.sent(_A)
    return algorithm.scenario(
        "a batch with a reply before its line",
        batch(algorithm.make, "batch-1", r, a),
        held=[_ORDER, refusals.REFUSED_FOR_GOOD],
    )


def _redriven(algorithm: _Algorithm) -> BatchScenario:
    r, a = algorithm.sent(_R), algorithm.sent(_A)
    return algorithm.scenario(
        "a redrive beside a copy",
        batch(algorithm.make, "redrive-1", r, is_redrive=True),
        deliver(algorithm.make, r),
        earlier=[batch(algorithm.make, "batch-1", r, a)],
        held=[],
    )


_ALL = (_OUTBOX, _STORE, _TOKENS)
SINGLE, BATCH, REDRIVEN = (tuple(map(each, _ALL)) for each in (_single, _in_a_batch, _redriven))

ONLY_IN_ORDER = tuple(
    replace(scenario, name=f"{scenario.name}, and its order alone", invariants=[_ORDER]) for scenario in BATCH
)
