"""Changes of the state and of the message."""

import bisect
import heapq

from handlers import Context, Handler, handles
from shop import Basket, Ordered


def remember(basket, name):
    basket.hits.append(name)  # expect: CM806


class Inputs(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        state.hits.append(message.name)  # expect: CM806
        state.counts[message.name] = 1  # expect: CM806
        object.__setattr__(state, "count", 3)  # expect: CM806
        state.__dict__["count"] = 3  # expect: CM806
        state.count = 3  # expect: CM806
        setattr(state, "count", 3)  # expect: CM806
        hits = state.hits
        hits += [message.name]  # expect: CM806
        message.extras.sort()  # expect: CM807
        tuple(message.extras)
        del message.extras[0]  # expect: CM807
        remember(state, message.name)
        heapq.heappush(state.hits, message.name)  # expect: CM806
        bisect.insort(message.extras, message.name)  # expect: CM807
        context.random.shuffle(state.hits)  # expect: CM806
        vars(state).update(count=3)  # expect: CM806
        copy = state.model_copy()
        copy.hits.append(message.name)  # miss: CM806 a shallow copy is taken for a deep one
        return copy
        return state
