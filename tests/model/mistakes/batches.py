"""Mistakes that only batches have: several deliveries at once, and attempts that must agree."""

from __future__ import annotations

from typing import Any

import pytest

from runtime.algorithms.state_based import algorithm as state_based
from runtime.algorithms.state_based.transaction import Transaction
from tests.model.mistakes.mistake import Mistake
from tests.model.mistakes.replays import replay_with_other_versions
from tests.model.scenarios.batches import ATTEMPTS, BATCHES, IN_PARTS
from tests.model.world import Bounds

StateBased: Any = state_based.StateBased


def _batches_are_not_told_apart(patch: pytest.MonkeyPatch) -> None:
    replay_with_other_versions(patch, lambda version, _: version._replace(batch=None))


def _what_was_refused_is_kept(patch: pytest.MonkeyPatch) -> None:
    invoke: Any = StateBased.invoke
    _all_versions_are_appended(patch)

    def invoke_on(self: Any, decider: Any, history: Any, *given: Any) -> Any:
        kept = {**getattr(self, "kept", {}), **history.appended}
        folded = invoke(self, decider, history._replace(appended=kept), *given)
        self.kept = folded.appended
        return folded

    patch.setattr(StateBased, "invoke", invoke_on)


def _all_versions_are_appended(patch: pytest.MonkeyPatch) -> None:
    seal: Any = Transaction.seal

    def seal_all(self: Any, *given: Any) -> Any:
        folded = seal(self, *given)
        added = {key: self._version(position) for key, position in self._positions.items()}
        return folded._replace(appended={**self._history.appended, **added})

    patch.setattr(Transaction, "seal", seal_all)


def _transactions_forget_each_other(patch: pytest.MonkeyPatch) -> None:
    seal: Any = Transaction.seal
    patch.setattr(Transaction, "seal", lambda *given: seal(*given)._replace(appended={}))


MISTAKES = (
    Mistake(
        "what an earlier transaction stored is forgotten",
        _transactions_forget_each_other,
        IN_PARTS,
        Bounds(1),
        "AtMostOneStateChange",
    ),
    Mistake(
        "versions do not record their batch", _batches_are_not_told_apart, ATTEMPTS, Bounds(), "AttemptsAgree"
    ),
    Mistake("outcomes of a lost race are kept", _what_was_refused_is_kept, BATCHES, Bounds(), "NoGhost"),
)
