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


class NowInUtc(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"note": str(datetime.datetime.now(datetime.UTC))})  # expect: CM101


class NowByAlias(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"note": str(dt.utcnow())})  # expect: CM101


class Today(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"note": str(date.today())})  # expect: CM101


class TimeByAlias(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"count": int(t.time())})  # expect: CM101


class TimeInNanoseconds(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"count": time.time_ns()})  # expect: CM101


class Monotonic(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        begun = monotonic()  # expect: CM102
        return state.model_copy(update={"total": begun})


class PerformanceCounter(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"total": ticks()})  # expect: CM102


class FormattedNow(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"note": str(time.strftime("%Y-%m-%d"))})  # expect: CM101


class LocalTimeZone(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"note": str(dt.fromtimestamp(message.at))})  # expect: CM103


class NowInTheLocalZone(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"note": str(context.now.astimezone())})  # expect: CM103


class LocalTime(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"note": str(time.localtime(message.at).tm_hour)})  # expect: CM103


class Waits(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        time.sleep(0.1)  # expect: CM104
        return state


class NowOfAClassThatItHas(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"note": str(type(context.now).now())})  # expect: CM101


class FunctionInAVariable(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        clock = time.time
        return state.model_copy(update={"total": clock()})  # expect: CM101


class CompressedWithItsTime(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"note": gzip.compress(message.name.encode()).hex()})  # expect: CM101
