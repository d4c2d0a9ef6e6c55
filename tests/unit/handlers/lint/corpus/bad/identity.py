"""Identities, hashes and memory."""

import gc
import weakref

from handlers import Context, Handler, handles
from shop import Basket, Ordered


class Identity(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"count": id(message)})  # expect: CM601


class HashOfText(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"count": hash(message.name) % 8})  # expect: CM602


class HashOfATuple(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        slot = hash((message.name, message.position)) % 8  # expect: CM602
        return state.model_copy(update={"count": slot})


class HashMethod(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"count": message.name.__hash__()})  # expect: CM602


class Garbage(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"count": len(gc.get_objects())})  # expect: CM603


class WeakReference(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        kept = weakref.ref(message)  # expect: CM603
        return state.model_copy(update={"note": str(kept() is None)})


class DefaultText(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"note": str(object())})  # miss: CM601 the default text of an object holds its address
