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


class Protocols(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        points = Points(1) + Points(2, state.names)
        f"{points}"
        len(points)
        tuple(Points(1, state.names))
        max(Points(1), Points(2)).count
        logging.getLogger(__name__).info("%s", list(state.names))
        return state
