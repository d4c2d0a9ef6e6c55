"""What the algorithms that a `Processor` takes by name cost for each message."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.algorithms.batches import Batched, measure_batches
from benchmarks.algorithms.growth import Growth
from benchmarks.algorithms.play import GAMES, ONE_GAME, Play, shots, starts
from benchmarks.algorithms.spent import Spent
from runtime import Status
from runtime.algorithms.choice import AlgorithmName
from samples.shooting_range.handlers import LeaderBoard, ShootingRange

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
