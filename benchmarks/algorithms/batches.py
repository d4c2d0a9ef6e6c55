"""What an algorithm costs when it is given many messages of a business object at once, as in a batch."""

from __future__ import annotations

from itertools import accumulate
from statistics import fmean
from typing import NamedTuple

from benchmarks.algorithms.counted_app import CountedApp
from benchmarks.algorithms.growth import Growth
from benchmarks.algorithms.metered_table import MeteredTable
from benchmarks.algorithms.play import ONE_GAME, check_ends, publish, shots, ticking_clock
from benchmarks.algorithms.spent import Spent
from benchmarks.games import game_id
from eventstore import drive
from runtime import Processor, Status
from runtime.algorithms.choice import AlgorithmName, BatchAlgorithm, Dependencies, make_batch_algorithms
from runtime.algorithms.outbox.algorithm import OutboxAlgorithm
from runtime.ledger.batch import BatchContext
from runtime.messages.envelope import id_key
from runtime.messages.parsing import prepare
from samples.shooting_range.handlers import ShootingRange

TOGETHER = 100
"""How many messages a batch has."""

BATCHES = range(24)


class Batched(NamedTuple):
    """The requests of a batch for a game, and the bytes by which a message makes the table grow."""

    requests: float
    growth: Growth


class BatchPlay:
    """A game whose messages are processed in batches."""

    def __init__(self, algorithm: AlgorithmName) -> None:
        self.table = MeteredTable()
        self.app = CountedApp(ShootingRange)
        (self._handler,) = self.app.handlers.values()
        self._algorithm: AlgorithmName = algorithm
        self._clock = ticking_clock()
        self._issuer = Processor(self.app, self.table, publish, algorithm=algorithm)

    def process(self, batch: int) -> Spent:
        """Process a batch of new messages, in both passes if there are two, and return what it cost."""
        messages = shots(range(batch * TOGETHER, (batch + 1) * TOGETHER), ONE_GAME)
        unsent = self.table.stored_bytes
        sent = [drive(self._issuer.issue(each)) for each in messages]
        deliveries = [prepare(self._handler, each.business_id, each) for each in sent]
        before = Spent.until_now(self.table, self.app)
        algorithm = self._in_batch(batch)
        outcomes = drive(algorithm.process(game_id(0), deliveries))
        check_ends([outcome.status for outcome in outcomes], Status.PROCESSED)
        if isinstance(algorithm, OutboxAlgorithm):
            drive(algorithm.finish(game_id(0), [id_key(each.message_id) for each in sent]))
        spent = Spent.until_now(self.table, self.app).each(before, 1)
        return spent._replace(stored_bytes=self.table.stored_bytes - unsent)

    def _in_batch(self, batch: int) -> BatchAlgorithm:
        context = BatchContext(f"20260101T000000-{batch:06}")
        given = Dependencies(self.app, self.table, clock=self._clock, batch=context)
        (algorithm,) = make_batch_algorithms(self._algorithm, given).values()
        return algorithm


def measure_batches(algorithm: AlgorithmName) -> Batched:
    """Process batches. Raises `DisagreementError` when a message ends otherwise than it should."""
    play = BatchPlay(algorithm)
    spent = [play.process(batch) for batch in BATCHES]
    sizes = list(accumulate(each.stored_bytes / TOGETHER for each in spent))
    return Batched(fmean(each.requests for each in spent), Growth.of(sizes))
