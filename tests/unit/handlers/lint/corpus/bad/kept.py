"""What is kept between messages: in modules, classes, defaults and caches."""

import decimal
import functools
import itertools
from decimal import Decimal

import counting

from handlers import Context, Handler, handles
from shop import Basket, Ordered


HANDLED = 0
SEEN: set[str] = set()
PRICES: dict[str, int] = {}
NUMBERS = itertools.count()
RATE = 1


def configure(rate):
    global RATE
    RATE = rate


def add_line(line, lines=[]):
    lines.append(line)  # expect: CM803
    return lines


@functools.lru_cache  # expect: CM804
def price_of(name):
    return len(name)


class Kept(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        global HANDLED
        HANDLED += 1  # expect: CM801
        if message.name in SEEN:
            pass
        SEEN.add(message.name)  # expect: CM801
        if message.name not in PRICES:
            PRICES[message.name] = len(message.name)  # expect: CM801
        next(NUMBERS)  # expect: CM801
        self.last = message.name  # expect: CM802
        tuple(add_line(message.name))
        price_of(message.name)
        decimal.getcontext().prec = 4  # expect: CM805
        str(Decimal(message.position) / 3)
        message.position * RATE  # expect: CM808
        counting.following()
        counting.last = message.name  # expect: CM801
        configure.calls = 1  # expect: CM801
        return state


class ClassList(Handler[Basket]):
    handled: list[str] = []

    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        self.handled.append(message.name)  # expect: CM802
        return state.model_copy(update={"count": len(self.handled)})


class ClassCounter(Handler[Basket]):
    handled = 0

    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        ClassCounter.handled += 1  # expect: CM802
        return state


class TypeCounter(Handler[Basket]):
    handled = 0

    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        type(self).handled += 1  # expect: CM802
        return state


class CachedProperty(Handler[Basket]):
    @functools.cached_property  # expect: CM804
    def size(self):
        return 3

    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"count": self.size})
