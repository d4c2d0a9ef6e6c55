"""What operators and protocols of objects call."""

import contextlib
import os
import random
import time
from dataclasses import dataclass

from handlers import Context, Handler, handles
from shop import Basket, Ordered


@dataclass(frozen=True)
class Money:
    amount: float = 1.0

    def __add__(self, other):
        return Money(self.amount + random.random())  # expect: CM201

    def __lt__(self, other):
        return time.time() > 1  # expect: CM101

    def __str__(self):
        return f"{self.amount} {os.getpid()}"  # expect: CM302

    def __iter__(self):
        yield random.random()  # expect: CM201

    def __getitem__(self, place):
        return random.random()  # expect: CM201

    def __contains__(self, other):
        return random.random() > 1  # expect: CM201

    def __bool__(self):
        return random.random() > 1  # expect: CM201


class Timer:
    def __enter__(self):
        self.begun = time.perf_counter()  # expect: CM102
        return self

    def __exit__(self, *error):
        self.ended = time.perf_counter()  # expect: CM102


class Roll:
    def __call__(self):
        return random.randrange(6)  # expect: CM201


@contextlib.contextmanager
def timed():
    yield time.perf_counter()  # expect: CM102


def drawn():
    while True:
        yield random.random()  # expect: CM201


class Protocols(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        (Money() + Money()).amount
        best = max([Money(1.0), Money(2.0)])
        best.amount
        f"{Money()}"
        sum(each for each in Money())
        Money()[0]
        int(1 in Money())
        if Money():
            pass
        with Timer():
            pass
        roll = Roll()
        roll()
        with timed():
            pass
        next(drawn())
        lines = ["a"]
        lines[:] = state.names  # expect: CM701
        places: dict[str, int] = {}
        places.update((name, 1) for name in state.names)  # expect: CM701
        return state
