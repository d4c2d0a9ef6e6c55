"""Mistakes of batches with an outbox: what belongs into the second pass, and to whom."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from runtime.algorithms.outbox.algorithm import OutboxAlgorithm
from runtime.messages.envelope import id_key
from tests.model.mistakes.mistake import Mistake
from tests.model.scenarios.two_passes import ATTEMPTS, BATCHES
from tests.model.world import Bounds


def _finished_in_the_first_pass(patch: pytest.MonkeyPatch) -> None:
    attempt: Any = OutboxAlgorithm.attempt

    async def attempt_and_finish(self: Any, business_id: str, *given: Any, **named: Any) -> Any:
        entity, outcomes = await attempt(self, business_id, *given, **named)
        await self.finish(business_id, [id_key(outcome.envelope.message_id) for outcome in outcomes])
        return entity, outcomes

    patch.setattr(OutboxAlgorithm, "attempt", attempt_and_finish)


def _entries_do_not_know_their_batch(patch: pytest.MonkeyPatch) -> None:
    invoke: Any = OutboxAlgorithm.invoke

    def invoke_alone(self: Any, entity: Any, message: Any, attempt: str) -> Any:
        changed = invoke(self, entity, message, attempt)
        return changed.with_entry(message.key, replace(changed.outbox[message.key], batch=None))

    patch.setattr(OutboxAlgorithm, "invoke", invoke_alone)


def _others_are_finished(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(OutboxAlgorithm, "_may_finish", lambda *_: True)


_CRASH = Bounds(1, 1)
_FAMILIES = ("outbox", "store", "tokens")

MISTAKES = (
    *(
        Mistake(
            f"{family}: finished in the first pass", _finished_in_the_first_pass, scenario, _CRASH, "NoLost"
        )
        for family, scenario in zip(_FAMILIES, ATTEMPTS, strict=True)
    ),
    *(
        Mistake(
            f"{family}: entries do not record their batch",
            _entries_do_not_know_their_batch,
            scenario,
            _CRASH,
            "ProcessedOnce",
        )
        for family, scenario in zip(_FAMILIES, ATTEMPTS, strict=True)
    ),
    *(
        Mistake(
            f"{family}: a batch finishes the entries of another",
            _others_are_finished,
            scenario,
            _CRASH,
            "ProcessedOnce",
        )
        for family, scenario in zip(_FAMILIES, BATCHES, strict=True)
    ),
)
