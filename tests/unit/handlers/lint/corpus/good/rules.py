"""Rules of a shop: value objects, an enum and plain functions."""

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum

LIMITS = {"least": 1, "most": 9}


class Discount(Enum):
    NONE = Decimal(1)
    HALF = Decimal("0.5")


@dataclass(frozen=True)
class Price:
    amount: Decimal

    def plus(self, other: Price) -> Price:
        return Price(self.amount + other.amount)


class Total:
    def __init__(self) -> None:
        self._count = 0
        self._lines: list[str] = []

    def add(self, line: str) -> None:
        self._lines.append(line)
        self._count += len(line)

    @property
    def count(self) -> int:
        return self._count


def discounted(price: Decimal, discount: Discount) -> Decimal:
    return price * discount.value


def total_of(lines: Iterable[str]) -> int:
    total = Total()
    for line in lines:
        total.add(line)
    return total.count
