"""Identities, hashes and memory."""

import gc
import weakref

from handlers import Context, Handler, handles
from shop import Basket, Ordered


class Identities(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        id(message)  # expect: CM601
        hash(message.name) % 8  # expect: CM602
        slot = hash((message.name, message.position)) % 8  # expect: CM602
        message.name.__hash__()  # expect: CM602
        len(gc.get_objects())  # expect: CM603
        kept = weakref.ref(message)  # expect: CM603
        str(object())  # miss: CM601 the default text of an object holds its address
        return state
