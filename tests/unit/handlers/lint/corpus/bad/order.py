"""The order of sets."""

import functools
import itertools
import pickle

from handlers import Context, Handler, handles
from shop import Basket, Ordered, Told


class LoopOverAField(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        note = ""
        for name in state.names:  # expect: CM701
            note += name
        return state.model_copy(update={"note": note})


class LoopOverAMessage(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        for tag in message.tags:  # expect: CM701
            context.publish(Told(shop=message.shop, text=tag))
        return state


class ListOfASet(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"lines": tuple(list(state.names))})  # expect: CM701


class TupleOfAUnion(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"lines": tuple(state.names | {message.name})})  # expect: CM701


class Comprehension(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        lines = [name.upper() for name in state.names - message.tags]  # expect: CM701
        return state.model_copy(update={"lines": tuple(lines)})


class DictOfASet(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        places = {name: len(name) for name in state.names}  # expect: CM701
        return state.model_copy(update={"lines": tuple(places)})


class FromKeys(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"lines": tuple(dict.fromkeys(state.names))})  # expect: CM701


class Joined(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"note": ",".join(state.names)})  # expect: CM701


class Enumerated(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        for place, name in enumerate(set(state.lines)):  # expect: CM701
            context.publish(Told(shop=message.shop, text=f"{place} {name}"))
        return state


class Pop(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        left = set(state.lines)
        return state.model_copy(update={"note": left.pop()})  # expect: CM702


class FirstOfASet(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"note": next(iter(state.names))})  # expect: CM702


class FormattedSet(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"note": f"names: {state.names}"})  # expect: CM703


class TextOfASet(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"note": str(set(state.lines))})  # expect: CM703


class PercentFormat(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"note": "%s" % state.names})  # expect: CM703


class JsonOfTheState(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"note": state.model_dump_json()})  # expect: CM703


class Unpacked(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"lines": (*state.names, message.name)})  # expect: CM701


class TakenApart(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        first, *_ = state.names  # expect: CM701
        return state.model_copy(update={"note": first})


class FloatSum(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"total": sum(state.weights)})  # expect: CM704


class FloatSumOfAField(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"total": sum(each.weight for each in state.players)})  # expect: CM704


class BestOfASet(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        best = max(state.players, key=lambda each: each.score)  # expect: CM705
        return state.model_copy(update={"note": best.name})


class Chained(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        lines = list(itertools.chain(state.names, message.tags))  # expect: CM701
        return state.model_copy(update={"lines": tuple(lines)})


class Reduced(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"note": functools.reduce(str.__add__, state.names, "")})  # expect: CM701


class ChosenFromASet(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"note": context.random.choice(tuple(state.names))})  # expect: CM701


class CommonKeys(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        prices = {"a": 1, "b": 2}
        stock = {"b": 3, "a": 4}
        lines = [key for key in prices.keys() & stock.keys()]  # expect: CM701
        return state.model_copy(update={"lines": tuple(lines)})


class SetsInADict(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        groups: dict[int, set[str]] = {}
        for line in state.lines:
            groups.setdefault(len(line), set()).add(line)
        lines = [line for group in groups.values() for line in group]  # expect: CM701
        return state.model_copy(update={"lines": tuple(lines)})


class SetsInAnUnannotatedDict(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        groups = {}
        for line in state.lines:
            groups.setdefault(len(line), set()).add(line)
        lines = [line for group in groups.values() for line in group]  # miss: CM701 values that are put into a dict later are not tracked
        return state.model_copy(update={"lines": tuple(lines)})


class ExtendedByASet(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        lines = list(state.lines)
        lines.extend(message.tags)  # expect: CM701
        return state.model_copy(update={"lines": tuple(lines)})


class Pickled(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"note": pickle.dumps(state.names).hex()})  # expect: CM703


class NextByItsMethod(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"note": iter(state.names).__next__()})  # expect: CM702
