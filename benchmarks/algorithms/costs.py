"""Costs of the algorithms of a `Processor`: of a message, a batch, a delivery, and a growing table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from statistics import fmean, median
from typing import NamedTuple

from benchmarks.algorithms.grid import Grid, amount
from benchmarks.algorithms.play import (
    GAMES,
    ONE_GAME,
    CountedApp,
    MeteredTable,
    Play,
    Spent,
    check_ends,
    publish,
    shots,
    starts,
    ticking_clock,
)
from benchmarks.games import game_id
from eventstore import drive
from runtime import Processor, Status
from runtime.algorithms.choice import AlgorithmName, BatchAlgorithm, Dependencies, make_batch_algorithms
from runtime.algorithms.outbox.algorithm import OutboxAlgorithm
from runtime.ledger.batch import BatchContext
from runtime.messages.envelope import id_key
from runtime.messages.parsing import prepare
from runtime.publishing import DeliverySettings
from runtime.publishing.last_hop import IdempotentDelivery, Send, TableKeys
from runtime.publishing.publisher import Result
from samples.shooting_range.handlers import LeaderBoard, ShootingRange

_CLEARLY_LESS = 0.75


class Growth(NamedTuple):
    """The bytes that a message takes at first, and those that it takes in the long run."""

    at_first: float
    in_the_end: float

    @classmethod
    def of(cls, sizes: Sequence[float]) -> Growth:
        """Return the growth that a table's sizes show, one size after each message.

        Some keep their newest messages in one way, and when these are enough, pack them in another that takes less:
        then the table grows clearly less than it usually does, or shrinks. What is kept in the long run is the growth
        from the first time that this happens to the last.
        """
        steps = [after - before for before, after in pairwise(sizes)]
        usual = median(steps)
        packed = [number for number, step in enumerate(steps, 1) if step < _CLEARLY_LESS * usual]
        if not packed or packed[0] == packed[-1]:
            return cls(usual, usual)
        first, last = packed[0], packed[-1]
        return cls(usual, (sizes[last] - sizes[first]) / (last - first))


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


HISTORY = range(200)
"""The numbers of the messages that each game had before anything is counted."""

NEW = range(200, 300)
SILENT = range(300, 400)
AGAIN = 20
"""How many messages of each game are redelivered, of the oldest and of the newest."""

GROWING = range(400)
"""The messages of the one game whose bytes are measured after each of them."""


@dataclass(frozen=True, slots=True)
class Costs:
    """What each message costs one by one, and in batches.

    `taken` sends to another handler, `untaken` to none, and `silent` sends nothing. A `recent` duplicate is a copy of
    one of the newest messages of a game, an `old` one of one of the first. `issue` is what a message from outside
    costs until it is processed. `growth` is what is kept of a message whose output no handler has to process.
    """

    taken: Spent
    untaken: Spent
    silent: Spent
    recent: Spent
    old: Spent
    issue: Spent
    growth: Growth
    batched: Batched

    @property
    def waiting(self) -> float:
        """The bytes that are kept beside this while its output waits for a handler of the app."""
        return self.taken.stored_bytes - self.untaken.stored_bytes


def measure(algorithm: AlgorithmName) -> Costs:
    """Play with one algorithm. Raises `DisagreementError` when a message ends otherwise than it should."""
    play = Play(algorithm, ShootingRange, LeaderBoard)
    first = play.issue(shots(HISTORY))[1]
    play.process(first)
    issue, sent = play.issue(shots(NEW))
    taken = play.process(sent)
    recent = play.process(sent[-AGAIN * GAMES :], Status.DUPLICATE)
    old = play.process(first[: AGAIN * GAMES], Status.DUPLICATE)
    silent = play.process(play.issue(starts(SILENT))[1])
    batched = measure_batches(algorithm)
    return Costs(taken, _untaken(algorithm), silent, recent, old, issue, _growth(algorithm), batched)


def _untaken(algorithm: AlgorithmName) -> Spent:
    play = Play(algorithm, ShootingRange)
    play.process(play.issue(shots(HISTORY))[1])
    return play.process(play.issue(shots(NEW))[1])


def _growth(algorithm: AlgorithmName) -> Growth:
    play, sizes = Play(algorithm, ShootingRange), []
    for each in shots(GROWING, ONE_GAME):
        play.process(play.issue([each])[1])
        sizes.append(play.table.stored_bytes)
    return Growth.of(sizes)


PART = "deliveries"
PROMISES = {
    "at most once": (DeliverySettings(), Result.FILTERED),
    "at least once": (DeliverySettings(frozenset({"*"})), Result.LOCKED),
}
"""The settings of each promise, and how a copy ends that comes while its message is being sent."""

_CUSTOMER = "17"
_MESSAGES = range(50)


class Post:
    """Delivers messages with one promise."""

    def __init__(self, settings: DeliverySettings) -> None:
        self.table = MeteredTable()
        self._delivery = IdempotentDelivery(TableKeys(self.table), settings, clock=ticking_clock())

    async def deliver(self, message_id: str, end: Result, send: Send) -> int:
        """Deliver a message and return the requests. Raises `DisagreementError` when that ends otherwise."""
        before = self.table.requests
        delivered = await self._delivery.deliver(_CUSTOMER, message_id, send)
        check_ends([delivered.end], end)
        return self.table.requests - before

    async def copies(self, message_id: str, end: Result) -> tuple[int, int, int]:
        """Return the requests for a message, for a copy of it while it is being sent, and for a copy after that."""
        beside = 0

        async def send() -> None:
            nonlocal beside
            beside = await self.deliver(message_id, end, _send)

        both = await self.deliver(message_id, Result.SENT, send)
        return both - beside, beside, await self.deliver(message_id, Result.FILTERED, _send)


def measure_deliveries() -> Grid:
    """Return the requests for messages and their copies, by promise. Raises `DisagreementError`."""
    return Grid(
        ["requests", "new", "duplicate during sending", "duplicate afterwards"],
        [[promise, *_requests(settings, end)] for promise, (settings, end) in PROMISES.items()],
    )


def _requests(settings: DeliverySettings, end: Result) -> list[str]:
    post = Post(settings)
    counted = [drive(post.copies(f"m-{number}", end)) for number in _MESSAGES]
    return [amount(fmean(column)) for column in zip(*counted, strict=True)]


async def _send() -> None:
    """Send a message, which asks nothing of a table."""
