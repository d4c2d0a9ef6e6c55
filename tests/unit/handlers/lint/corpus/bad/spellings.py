"""Other ways to name the same."""

import builtins
import functools
import importlib
import operator
import random
import sys
import time
from datetime import datetime

from handlers import Context, Handler, handles
from shop import Basket, Ordered


class GetAttribute(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"total": getattr(time, "time")()})  # expect: CM101


class BuiltinImport(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"total": __import__("random").random()})  # expect: CM201


class ImportModule(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        chance = importlib.import_module("random")
        return state.model_copy(update={"total": chance.random()})  # expect: CM201


class LocalImport(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        from time import time as moment

        return state.model_copy(update={"total": moment()})  # expect: CM101


class PartialFunction(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        roll = functools.partial(random.randint, 1, 6)
        return state.model_copy(update={"count": roll()})  # expect: CM201


class MethodCaller(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        now = operator.methodcaller("now")
        return state.model_copy(update={"note": str(now(datetime))})  # expect: CM101


class LoadedModules(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"total": sys.modules["time"].time()})  # expect: CM101, CM302


class ModuleDictionary(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"total": vars(time)["time"]()})  # expect: CM101


class BuiltinsModule(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        with builtins.open("prices.txt") as file:  # expect: CM401
            return state.model_copy(update={"note": file.read()})


class Evaluated(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"total": eval("time.time()")})  # expect: CM101


class TableOfFunctions(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        tools = {"now": time.time, "then": time.monotonic}
        return state.model_copy(update={"total": tools[message.name]()})  # expect: CM101, CM102


class NameMadeOfParts(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        name = "ti" + "me"
        return state.model_copy(update={"total": getattr(time, name)()})  # expect: CM101


class NameFromTheMessage(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"total": getattr(time, message.name)()})  # miss: CM101 the name is computed; a note says so


class Executed(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        names = {}
        exec("import time; now = time.time()", names)  # miss: CM101 code that exec runs is not read
        return state.model_copy(update={"total": names["now"]})
