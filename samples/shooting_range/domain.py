"""What the shooting range and the leader board are told."""

from __future__ import annotations

from uuid import UUID

from handlers import Message, State


class StartNewRound(Message):
    """The target is put at a position, and the count of attempts starts anew."""

    game_id: UUID
    position: int


class FireAt(Message):
    """Somebody shoots at a position."""

    game_id: UUID
    position: int


class Hit(Message):
    """A shot met the target."""

    id: UUID
    game_id: UUID


class Missed(Message):
    """A shot missed the target."""

    id: UUID
    game_id: UUID


# What is remembered of a game.


class ShootingRangeData(State):
    """Where the target is, and how many shots of the round are spent."""

    target_position: int = 0
    number_of_attempts: int = 0


class LeaderBoardData(State):
    """How many shots of a game hit and missed."""

    number_of_hits: int = 0
    number_of_misses: int = 0
