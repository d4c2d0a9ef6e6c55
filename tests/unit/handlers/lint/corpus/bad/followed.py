"""What is reached through helpers, bases, decorators and objects."""

import functools
import random

import helpers
from helpers import Dice, Timed, stamp, timed

from handlers import Context, Handler, handles
from shop import Basket, Ordered


class Common(Handler[Basket]):
    def number(self) -> int:
        return 0

    def drawn(self) -> int:
        return self.number()


def recorded(function):
    @functools.wraps(function)
    def wrapper(self, state, message, context):
        print(random.random())  # expect: CM201
        return function(self, state, message, context)

    return wrapper


MARK = random.random()  # expect: CM201


class Followed(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        helpers.pick(state.lines)
        str(stamp())
        Dice(6).roll()
        MARK
        lines = [word for word in helpers.words(message.name)]  # expect: CM701
        def draw():
            return random.random()  # expect: CM201

        draw()
        total = context.capture("chance", random.random())  # expect: CM201
        total
        helpers.down(message.position)
        match message.position:
            case 0:
                pass
            case place if (drawn := random.randrange(6)) > place:  # expect: CM201
                drawn
        return state


class PrivateMethod(Handler[Basket]):
    def _draw(self):
        return random.randrange(6)  # expect: CM201

    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"count": self._draw()})


class PropertyOfTheHandler(Handler[Basket]):
    @property
    def lucky(self):
        return random.randrange(6)  # expect: CM201

    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"count": self.lucky})


class Overridden(Common):
    def number(self) -> int:
        return random.randrange(6)  # expect: CM201

    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"count": self.drawn()})


class MixedIn(Timed, Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"note": self.moment()})


class Decorated(Handler[Basket]):
    @handles(by="shop")
    @recorded
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state


class DecoratedElsewhere(Handler[Basket]):
    @handles(by="shop")
    @timed
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state


class PartialMethod(Handler[Basket]):
    def _roll(self, sides):
        return random.random() * sides  # expect: CM201

    roll = functools.partialmethod(_roll, 6)

    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"total": self.roll()})
