"""Mistakes that only batches have: several deliveries at once, and attempts that must agree."""

from __future__ import annotations

from typing import Any

import pytest

from runtime.algorithms.state_based.decide import Fold
from tests.model.algorithm import state_based
from tests.model.mistakes.mistake import Mistake
from tests.model.scenarios.batches import ATTEMPTS, BATCHES, IN_PARTS
from tests.model.world import Bounds

StateBased: Any = state_based.StateBased


def _batches_are_not_told_apart(patch: pytest.MonkeyPatch) -> None:
    handle: Any = Fold._handle_duplicate
    patch.setattr(
        Fold,
        "_handle_duplicate",
        lambda fold, delivery, known: handle(fold, delivery, known._replace(batch=None)),
    )


def _what_was_refused_is_kept(patch: pytest.MonkeyPatch) -> None:
    fold: Any = StateBased.fold

    def fold_on(self: Any, stream: Any, business_id: str, earlier: Any, fresh: Any, **given: Any) -> Any:
        self.kept = {**getattr(self, "kept", {}), **fresh}
        return fold(self, stream, business_id, earlier, self.kept, **given)

    patch.setattr(StateBased, "fold", fold_on)


def _parts_forget_each_other(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(state_based, "_still_needed", lambda *_: {})


MISTAKES = (
    Mistake(
        "what an earlier part stored is forgotten",
        _parts_forget_each_other,
        IN_PARTS,
        Bounds(1),
        "AtMostOneStateChange",
    ),
    Mistake(
        "versions do not know their batch", _batches_are_not_told_apart, ATTEMPTS, Bounds(), "AttemptsAgree"
    ),
    Mistake("what a lost race refused is kept", _what_was_refused_is_kept, BATCHES, Bounds(), "NoGhost"),
)
