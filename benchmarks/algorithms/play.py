"""Games on the shooting range that are processed with one algorithm, and what each message of them costs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

from benchmarks.algorithms.counted_app import CountedApp
from benchmarks.algorithms.metered_table import MeteredTable
from benchmarks.algorithms.spent import Spent
from benchmarks.contender import DisagreementError
from benchmarks.games import by_turn, game_id, message
from benchmarks.shooting import NOW
from eventstore import drive
from handlers import Handler
from runtime import Envelope, Output, Processor, Status
from runtime.algorithms.choice import AlgorithmName
from runtime.clock import Clock

GAMES = 2
ONE_GAME = range(1)
_BETWEEN = 10_007


class Play:
    """Some handlers of the sample, one algorithm, and a table for its states, ids and tokens."""

    def __init__(self, algorithm: AlgorithmName, *handlers: type[Handler[Any]]) -> None:
        self.table = MeteredTable()
        self.app = CountedApp(*handlers)
        self._processor = Processor(self.app, self.table, publish, clock=ticking_clock(), algorithm=algorithm)

    def issue(self, messages: Sequence[Envelope]) -> tuple[Spent, list[Envelope]]:
        """Give messages from outside their tokens. Return what each of them cost, and the messages as they are sent."""
        before = Spent.until_now(self.table, self.app)
        sent = [drive(self._processor.issue(each)) for each in messages]
        return Spent.until_now(self.table, self.app).each(before, len(sent)), sent

    def process(self, sent: Sequence[Envelope], status: Status = Status.PROCESSED) -> Spent:
        """Process messages and return what each of them cost. Raises `DisagreementError` when one ends otherwise."""
        before = Spent.until_now(self.table, self.app)
        for each in sent:
            check_ends([outcome.status for outcome in drive(self._processor.process(each))], status)
        return Spent.until_now(self.table, self.app).each(before, len(sent))


def shots(numbers: range, games: range = range(GAMES)) -> list[Envelope]:
    """Return shots of these numbers in each game, each of which has one output."""
    return _messages("FireAt", numbers, games)


def starts(numbers: range, games: range = range(GAMES)) -> list[Envelope]:
    """Return starts of rounds in each game, which have no outputs. They share their numbers with the shots."""
    return _messages("StartNewRound", numbers, games)


async def publish(_output: Output) -> None:
    """Let nobody take what is published: it waits."""


def ticking_clock() -> Clock:
    """Return a clock that goes on a little whenever somebody looks at it."""
    return count(NOW, _BETWEEN).__next__


def check_ends(ends: Sequence[str], end: str) -> None:
    """Raise `DisagreementError` unless there is an end, and all of them are this one."""
    if set(ends) != {end}:
        shown = ", ".join(sorted(set(ends))) or "nothing"
        message = f"A message ended as {shown}, but should be {end}: the measurement stands for nothing."
        raise DisagreementError(message)


def _messages(type_: str, numbers: range, games: range) -> list[Envelope]:
    return [
        Envelope(message_id, type_, body, game_id(game), turn, NOW + turn * _BETWEEN)
        for game, turn in by_turn(games, numbers)
        for message_id, _, body in [message(game, turn)]
    ]
