"""Helpers that are no better than the handlers that call them."""

import random
import time
from datetime import datetime


def pick(lines):
    return random.choice(lines)  # expect: CM201


def stamp():
    return _now()


def _now():
    return datetime.now()  # expect: CM101


def words(text) -> set[str]:
    return set(text.split())


def down(count):
    if count <= 0:
        return random.randrange(6)  # expect: CM201
    return down(count - 1)


def timed(function):
    def wrapper(*args, **kwargs):
        time.perf_counter()  # expect: CM102
        return function(*args, **kwargs)

    return wrapper


class Timed:
    def moment(self):
        return time.ctime()  # expect: CM101


class Dice:
    def __init__(self, sides):
        self.sides = sides
        self.chance = random.Random()  # expect: CM201

    def roll(self):
        return self.chance.randrange(self.sides)
