"""What is remembered of a game."""

from handlers import State


class ShootingRangeData(State):
    """Where the target is, and how many shots of the round are spent."""

    target_position: int = 0
    number_of_attempts: int = 0


class LeaderBoardData(State):
    """How many shots of a game hit and missed."""

    number_of_hits: int = 0
    number_of_misses: int = 0
