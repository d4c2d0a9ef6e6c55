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


class Spellings(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        getattr(time, "time")()  # expect: CM101
        __import__("random").random()  # expect: CM201
        chance = importlib.import_module("random")
        chance.random()  # expect: CM201
        from time import time as moment

        moment()  # expect: CM101
        roll = functools.partial(random.randint, 1, 6)
        roll()  # expect: CM201
        now = operator.methodcaller("now")
        str(now(datetime))  # expect: CM101
        sys.modules["time"].time()  # expect: CM101, CM302
        vars(time)["time"]()  # expect: CM101
        with builtins.open("prices.txt") as file:  # expect: CM401
            file.read()
        eval("time.time()")  # expect: CM101
        tools = {"now": time.time, "then": time.monotonic}
        tools[message.name]()  # expect: CM101, CM102
        name = "ti" + "me"
        getattr(time, name)()  # expect: CM101
        getattr(time, message.name)()  # miss: CM101 the name is computed; a note says so
        names = {}
        exec("import time; now = time.time()", names)  # miss: CM101 code that exec runs is not read
        names["now"]
        return state
