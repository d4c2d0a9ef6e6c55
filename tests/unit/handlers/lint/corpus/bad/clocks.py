"""Clocks, under their own and other names."""

import datetime
import gzip
import time
import time as t
from datetime import date
from datetime import datetime as dt
from time import monotonic, perf_counter as ticks

from handlers import Context, Handler, handles
from shop import Basket, Ordered


class Clocks(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        str(datetime.datetime.now(datetime.UTC))  # expect: CM101
        str(dt.utcnow())  # expect: CM101
        str(date.today())  # expect: CM101
        int(t.time())  # expect: CM101
        time.time_ns()  # expect: CM101
        begun = monotonic()  # expect: CM102
        ticks()  # expect: CM102
        str(time.strftime("%Y-%m-%d"))  # expect: CM101
        str(dt.fromtimestamp(message.at))  # expect: CM103
        str(context.now.astimezone())  # expect: CM103
        str(time.localtime(message.at).tm_hour)  # expect: CM103
        time.sleep(0.1)  # expect: CM104
        str(type(context.now).now())  # expect: CM101
        clock = time.time
        clock()  # expect: CM101
        gzip.compress(message.name.encode()).hex()  # expect: CM101
        return state
