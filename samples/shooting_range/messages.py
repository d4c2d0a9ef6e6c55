"""What the shooting range and the leader board are told."""

from uuid import UUID

from handlers import Message


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
