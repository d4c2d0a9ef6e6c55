"""The order of sets."""

import functools
import itertools
import pickle

from handlers import Context, Handler, handles
from shop import Basket, Ordered, Told


class Order(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        note = ""
        for name in state.names:  # expect: CM701
            note += name
        for tag in message.tags:  # expect: CM701
            context.publish(Told(shop=message.shop, text=tag))
        tuple(list(state.names))  # expect: CM701
        tuple(state.names | {message.name})  # expect: CM701
        lines = [name.upper() for name in state.names - message.tags]  # expect: CM701
        places = {name: len(name) for name in state.names}  # expect: CM701
        tuple(dict.fromkeys(state.names))  # expect: CM701
        ",".join(state.names)  # expect: CM701
        for place, name in enumerate(set(state.lines)):  # expect: CM701
            context.publish(Told(shop=message.shop, text=f"{place} {name}"))
        left = set(state.lines)
        left.pop()  # expect: CM702
        next(iter(state.names))  # expect: CM702
        f"names: {state.names}"  # expect: CM703
        str(set(state.lines))  # expect: CM703
        "%s" % state.names  # expect: CM703
        state.model_dump_json()  # expect: CM703
        (*state.names, message.name)  # expect: CM701
        first, *_ = state.names  # expect: CM701
        sum(state.weights)  # expect: CM704
        sum(each.weight for each in state.players)  # expect: CM704
        best = max(state.players, key=lambda each: each.score)  # expect: CM705
        lines = list(itertools.chain(state.names, message.tags))  # expect: CM701
        functools.reduce(str.__add__, state.names, "")  # expect: CM701
        context.random.choice(tuple(state.names))  # expect: CM701
        prices = {"a": 1, "b": 2}
        stock = {"b": 3, "a": 4}
        lines = [key for key in prices.keys() & stock.keys()]  # expect: CM701
        groups: dict[int, set[str]] = {}
        for line in state.lines:
            groups.setdefault(len(line), set()).add(line)
        lines = [line for group in groups.values() for line in group]  # expect: CM701
        groups = {}
        for line in state.lines:
            groups.setdefault(len(line), set()).add(line)
        lines = [line for group in groups.values() for line in group]  # miss: CM701 values that are put into a dict later are not tracked
        lines = list(state.lines)
        lines.extend(message.tags)  # expect: CM701
        pickle.dumps(state.names).hex()  # expect: CM703
        iter(state.names).__next__()  # expect: CM702
        return state
