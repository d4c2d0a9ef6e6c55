"""Mistakes of batches with an outbox: what belongs into the second pass, and to whom."""

from __future__ import annotations

from typing import Any

import pytest

from runtime.algorithms.outbox.outbox_batch import OutboxBatch
from runtime.messages.message_ids import id_key
from tests.model.mistakes.mistake import Mistake
from tests.model.scenarios.two_passes import ATTEMPTS, BATCHES
from tests.model.world import Bounds


def _finished_in_the_first_pass(patch: pytest.MonkeyPatch) -> None:
    attempt: Any = OutboxBatch.attempt

    async def attempt_and_finish(self: Any, business_id: str, *given: Any, **named: Any) -> Any:
        outcomes = await attempt(self, business_id, *given, **named)
        await self.finish(business_id, [id_key(outcome.envelope.message_id) for outcome in outcomes])
        return outcomes

    patch.setattr(OutboxBatch, "attempt", attempt_and_finish)


def _entries_do_not_know_their_batch(patch: pytest.MonkeyPatch) -> None:
    begin: Any = OutboxBatch.__init__

    def begin_without_one(self: Any, algorithm: Any, context: Any, *more: Any) -> None:
        begin(self, algorithm, context, *more)
        invoke = algorithm.invoke
        algorithm.invoke = lambda entity, message, attempt, _: invoke(entity, message, attempt)

    patch.setattr(OutboxBatch, "__init__", begin_without_one)


def _others_are_finished(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(OutboxBatch, "_may_finish", lambda *_: True)


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
