"""Replays that go by other versions than those that were found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from runtime.algorithms.state_based.decide import Decider
from runtime.versions.run import Version


def replay_with_other_versions(patch: pytest.MonkeyPatch, change: Callable[[Version, Any], Version]) -> None:
    """Have each known message replayed by what `change` makes of its version and the transaction."""
    replay: Any = Decider._replay
    replay_all: Any = Decider._replay_all

    def changed(known: Any, transaction: Any) -> Any:
        return known._replace(version=change(known.version, transaction))

    def replay_one(self: Any, known: Any, transaction: Any) -> None:
        replay(self, changed(known, transaction), transaction)

    def replay_in_a_row(self: Any, known: Any, transaction: Any) -> None:
        replay_all(self, [changed(each, transaction) for each in known], transaction)

    patch.setattr(Decider, "_replay", replay_one)
    patch.setattr(Decider, "_replay_all", replay_in_a_row)
