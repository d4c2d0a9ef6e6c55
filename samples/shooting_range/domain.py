"""The messages and states of the shooting range and the leader board."""

from __future__ import annotations

from uuid import UUID

from handlers import Message, State


class StartNewRound(Message):
    """The target moves to a position, and a new round begins."""

    game_id: UUID
    position: int


class FireAt(Message):
    game_id: UUID
    position: int


class Hit(Message):
    id: UUID
    game_id: UUID


class Missed(Message):
    id: UUID
    game_id: UUID


# The states of a game.


class ShootingRangeData(State):
    """The position of the target, and the number of shots in this round."""

    target_position: int = 0
    number_of_attempts: int = 0


class LeaderBoardData(State):
    """The numbers of hits and misses of a game."""

    number_of_hits: int = 0
    number_of_misses: int = 0
