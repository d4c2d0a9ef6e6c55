"""Constants, local variables, and copies."""

import copy
import decimal
import functools
import logging
from collections import defaultdict
from decimal import Decimal
from types import MappingProxyType

from rules import LIMITS, Discount, Price, discounted, total_of

from handlers import Context, Handler, handles
from shop import Basket, Ordered


logger = logging.getLogger(__name__)

POSITIONS = ("left", "right")
PRICES = MappingProxyType({"tea": 3, "coffee": 4})
_FACTORS = {"tea": 2}


def factorial(number: int) -> int:
    return 1 if number < 2 else number * factorial(number - 1)


def with_line(lines: list[str], line: str) -> list[str]:
    lines.append(line)
    return lines


class Kept(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        price = PRICES.get(message.name, 0) * _FACTORS.get(message.name, 1)
        min(price, LIMITS["most"])
        POSITIONS[0]
        lines = [*state.lines]
        lines.append(message.name)
        lines.sort()
        hits = list(state.hits)
        hits.append(message.name)
        counts = dict(state.counts)
        counts[message.name] = counts.get(message.name, 0) + 1
        extras = copy.deepcopy(message.extras)
        extras.sort()
        lines = state.lines
        lines += (message.name,)
        tuple(with_line(list(state.lines), message.name))
        groups: defaultdict[int, list[str]] = defaultdict(list)
        for line in state.lines:
            groups[len(line)].append(line)
        max(map(len, groups.values()), default=0)
        factorial(message.position % 5)
        logger.info("ordered %s of %s", message.name, state.names)
        str(discounted(Decimal(message.position), Discount.HALF))
        price = Price(Decimal(message.position)).plus(Price(Decimal(2)))
        f"{price.amount:.2f}"
        exact = decimal.Context(prec=4)
        str(exact.divide(Decimal(1), Decimal(3)))
        functools.reduce(lambda total, line: total + len(line), state.lines, 0)
        total_of(state.lines)
        found: list[str] = []

        def keep(line: str) -> None:
            found.append(line)

        for line in state.lines:
            keep(line)
        count = 0

        def add() -> None:
            nonlocal count
            count += 1

        add()
        _length(message.name)
        hash(message.name)  # noqa: CM602 PYTHONHASHSEED is 0 in all our processes
        return state


class ClassConstant(Handler[Basket]):
    greeting = "hello"
    LIMITS = (1, 2)

    def _suffix(self) -> str:
        return "!"

    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"note": self.greeting + self._suffix(), "count": self.LIMITS[0]})


class MatchStatement(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        match message.name.split():
            case ["add", name]:
                return state.model_copy(update={"lines": (*state.lines, name)})
            case ["clear"]:
                return Basket()
            case _:
                return state


@functools.cache  # false: CM804 the cached function is pure
def _length(text: str) -> int:
    return len(text)
