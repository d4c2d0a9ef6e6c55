"""Changes of the state and of the message."""

import bisect
import heapq

from handlers import Context, Handler, handles
from shop import Basket, Ordered


def remember(basket, name):
    basket.hits.append(name)  # expect: CM806


class AppendsToTheState(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        state.hits.append(message.name)  # expect: CM806
        return state


class SetsItemOfTheState(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        state.counts[message.name] = 1  # expect: CM806
        return state


class SetsAttributeAnyhow(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        object.__setattr__(state, "count", 3)  # expect: CM806
        return state


class SetsThroughTheDictionary(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        state.__dict__["count"] = 3  # expect: CM806
        return state


class SetsAttribute(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        state.count = 3  # expect: CM806
        return state


class SetsAttributeByName(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        setattr(state, "count", 3)  # expect: CM806
        return state


class ChangesAnAlias(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        hits = state.hits
        hits += [message.name]  # expect: CM806
        return state


class SortsTheMessage(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        message.extras.sort()  # expect: CM807
        return state.model_copy(update={"lines": tuple(message.extras)})


class DeletesFromTheMessage(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        del message.extras[0]  # expect: CM807
        return state


class ChangedByAHelper(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        remember(state, message.name)
        return state


class PushesOnAHeap(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        heapq.heappush(state.hits, message.name)  # expect: CM806
        return state


class InsertsInOrder(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        bisect.insort(message.extras, message.name)  # expect: CM807
        return state


class ShufflesTheState(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        context.random.shuffle(state.hits)  # expect: CM806
        return state


class UpdatesVars(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        vars(state).update(count=3)  # expect: CM806
        return state


class ChangesASharedCopy(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        copy = state.model_copy()
        copy.hits.append(message.name)  # miss: CM806 a shallow copy is taken for a deep one
        return copy
