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


class Constants(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        price = PRICES.get(message.name, 0) * _FACTORS.get(message.name, 1)
        return state.model_copy(update={"count": min(price, LIMITS["most"]), "note": POSITIONS[0]})


class LocalList(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        lines = [*state.lines]
        lines.append(message.name)
        lines.sort()
        return state.model_copy(update={"lines": tuple(lines)})


class CopiedList(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        hits = list(state.hits)
        hits.append(message.name)
        return state.model_copy(update={"hits": hits})


class CopiedDict(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        counts = dict(state.counts)
        counts[message.name] = counts.get(message.name, 0) + 1
        return state.model_copy(update={"counts": counts})


class DeepCopy(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        extras = copy.deepcopy(message.extras)
        extras.sort()
        return state.model_copy(update={"lines": tuple(extras)})


class LongerTuple(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        lines = state.lines
        lines += (message.name,)
        return state.model_copy(update={"lines": lines})


class ListOfTheCaller(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"lines": tuple(with_line(list(state.lines), message.name))})


class Groups(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        groups: defaultdict[int, list[str]] = defaultdict(list)
        for line in state.lines:
            groups[len(line)].append(line)
        return state.model_copy(update={"count": max(map(len, groups.values()), default=0)})


class Recursion(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"count": factorial(message.position % 5)})


class Logs(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        logger.info("ordered %s of %s", message.name, state.names)
        return state


class RulesElsewhere(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"note": str(discounted(Decimal(message.position), Discount.HALF))})


class ValueObject(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        price = Price(Decimal(message.position)).plus(Price(Decimal(2)))
        return state.model_copy(update={"note": f"{price.amount:.2f}"})


class LocalPrecision(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        exact = decimal.Context(prec=4)
        return state.model_copy(update={"note": str(exact.divide(Decimal(1), Decimal(3)))})


class Reduced(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"count": functools.reduce(lambda total, line: total + len(line), state.lines, 0)})


class TotalOfObjects(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"count": total_of(state.lines)})


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


class ClosureOverALocal(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        found: list[str] = []

        def keep(line: str) -> None:
            found.append(line)

        for line in state.lines:
            keep(line)
        return state.model_copy(update={"lines": tuple(found)})


class NonlocalCounter(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        count = 0

        def add() -> None:
            nonlocal count
            count += 1

        add()
        return state.model_copy(update={"count": count})


class Cached(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"count": _length(message.name)})


@functools.cache  # false: CM804 the cached function is pure
def _length(text: str) -> int:
    return len(text)


class Explained(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"count": hash(message.name)})  # noqa: CM602 PYTHONHASHSEED is 0 in all our processes
