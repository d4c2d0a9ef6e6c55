"""Operators and protocols of objects that depend on nothing else."""

import logging
from dataclasses import dataclass
from functools import total_ordering

from handlers import Context, Handler, handles
from shop import Basket, Ordered


@total_ordering
@dataclass(frozen=True)
class Points:
    count: int = 0
    names: frozenset[str] = frozenset()

    def __add__(self, other):
        return Points(self.count + other.count, self.names | other.names)

    def __lt__(self, other):
        return self.count < other.count

    def __str__(self):
        return f"{self.count} of {sorted(self.names)}"

    def __iter__(self):
        yield from sorted(self.names)

    def __len__(self):
        return len(self.names)


class AddedPoints(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        points = Points(1) + Points(2, state.names)
        return state.model_copy(update={"note": f"{points}", "count": len(points)})


class IteratedPoints(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"lines": tuple(Points(1, state.names))})


class BestPoints(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"count": max(Points(1), Points(2)).count})


class LoggedLines(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        logging.getLogger(__name__).info("%s", list(state.names))
        return state
