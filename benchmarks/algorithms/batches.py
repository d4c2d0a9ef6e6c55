"""What the state-based algorithm costs when it is given many messages of a stream at once, as in a batch."""

from __future__ import annotations

from itertools import accumulate
from statistics import fmean
from typing import NamedTuple

from benchmarks.algorithms.counted_app import CountedApp
from benchmarks.algorithms.growth import Growth
from benchmarks.algorithms.metered_table import MeteredTable
from benchmarks.algorithms.play import ONE_GAME, check_ends, shots, ticking_clock
from benchmarks.algorithms.spent import Spent
from benchmarks.games import game_id
from eventstore import drive
from runtime import Status
from runtime.algorithms.state_based import StateBased
from runtime.backoff import BackoffPolicy
from runtime.fold import BatchContext
from runtime.preparation import prepare
from samples.shooting_range.shooting_range import ShootingRange

TOGETHER = 100
"""How many messages a batch has."""

BATCHES = range(24)


class Batched(NamedTuple):
    """The requests of a batch for a game, and the bytes by which a message makes the table grow."""

    requests: float
    growth: Growth


class BatchPlay:
    """A game whose messages are processed in batches."""

    def __init__(self) -> None:
        self.table = MeteredTable()
        self.app = CountedApp(ShootingRange)
        (self._handler,) = self.app.handlers.values()
        self._clock = ticking_clock()

    def process(self, batch: int) -> Spent:
        """Process a batch of new messages, and return what it cost."""
        before = Spent.until_now(self.table, self.app)
        context = BatchContext(f"20260101T000000-{batch:06}")
        algorithm = StateBased(self.table, self._handler, self._clock, context, BackoffPolicy())
        messages = shots(range(batch * TOGETHER, (batch + 1) * TOGETHER), ONE_GAME)
        deliveries = [prepare(self._handler, each.business_id, each) for each in messages]
        outcomes = drive(algorithm.process(game_id(0), deliveries))
        check_ends([outcome.status for outcome in outcomes], Status.PROCESSED)
        return Spent.until_now(self.table, self.app).each(before, 1)


def measure_batches() -> Batched:
    """Process batches. Raises `DisagreementError` when a message ends otherwise than it should."""
    play = BatchPlay()
    spent = [play.process(batch) for batch in BATCHES]
    sizes = list(accumulate(each.stored_bytes / TOGETHER for each in spent))
    return Batched(fmean(each.requests for each in spent), Growth.of(sizes))
