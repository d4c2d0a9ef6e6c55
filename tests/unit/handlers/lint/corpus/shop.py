"""What the handlers of the corpus are told, and what they remember."""

from decimal import Decimal
from uuid import UUID

from pydantic import BaseModel, ConfigDict

from handlers import Message, State


class Player(BaseModel):
    model_config = ConfigDict(frozen=True)

    name: str
    score: int = 0
    weight: float = 1.0


class Basket(State):
    names: frozenset[str] = frozenset()
    weights: frozenset[float] = frozenset()
    prices: frozenset[Decimal] = frozenset()
    players: frozenset[Player] = frozenset()
    lines: tuple[str, ...] = ()
    hits: list[str] = []
    counts: dict[str, int] = {}
    note: str = ""
    count: int = 0
    total: float = 0.0


class Ordered(Message):
    shop: str
    name: str = ""
    position: int = 0
    at: float = 0.0
    key: UUID = UUID(int=0)
    tags: frozenset[str] = frozenset()
    extras: list[str] = []


class Told(Message):
    shop: str
    text: str = ""
