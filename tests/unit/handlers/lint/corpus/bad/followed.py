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


class HelperInAModule(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"note": helpers.pick(state.lines)})


class HelperByName(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"note": str(stamp())})


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


class ObjectOfAHelper(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"count": Dice(6).roll()})


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


class ValueOfAModule(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"total": MARK})


class SetFromAHelper(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        lines = [word for word in helpers.words(message.name)]  # expect: CM701
        return state.model_copy(update={"lines": tuple(lines)})


class NestedFunction(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        def draw():
            return random.random()  # expect: CM201

        return state.model_copy(update={"total": draw()})


class CalledBeforeCapture(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        total = context.capture("chance", random.random())  # expect: CM201
        return state.model_copy(update={"total": total})


class RecursiveHelper(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"count": helpers.down(message.position)})


class MatchAndWalrus(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        match message.position:
            case 0:
                return state
            case place if (drawn := random.randrange(6)) > place:  # expect: CM201
                return state.model_copy(update={"count": drawn})
        return state


class PartialMethod(Handler[Basket]):
    def _roll(self, sides):
        return random.random() * sides  # expect: CM201

    roll = functools.partialmethod(_roll, 6)

    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"total": self.roll()})
