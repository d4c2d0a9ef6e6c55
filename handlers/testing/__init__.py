"""Tests of handlers, without a store or Spark, always under guard.

A specification of a handler, and a check of all handlers of an app:

    HandlerSpec(ShootingRange).given(StartNewRound(game_id=GAME, position=7)).when(
        FireAt(game_id=GAME, position=7)
    ).then(publishes=[Hit], state=ShootingRangeData(target_position=7, number_of_attempts=1)).redelivered()

    check_determinism(app)
"""

from handlers.testing.determinism import check_determinism
from handlers.testing.spec import Handled, HandlerSpec

__all__ = ["Handled", "HandlerSpec", "check_determinism"]
