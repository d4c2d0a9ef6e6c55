"""Random numbers and guids."""

import random
import secrets
import uuid
from os import urandom
from random import *
from uuid import uuid4

import numpy as np

from handlers import Context, Handler, handles
from shop import Basket, Ordered


class Chance(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        str(random.choice(state.lines))  # expect: CM201
        dice = random.Random()  # expect: CM201
        dice.randint(1, 6)
        randint(1, 6)  # expect: CM201
        str(secrets.token_hex(8))  # expect: CM202
        str(urandom(4).hex())  # expect: CM202
        str(uuid4())  # expect: CM203
        str(uuid.uuid1())  # expect: CM203
        float(np.random.rand())  # expect: CM204
        drawn = np.random.default_rng().integers(6)  # expect: CM204
        lines = list(state.lines)
        random.shuffle(lines)  # expect: CM201
        lines = sorted(state.lines, key=lambda _: random.random())  # expect: CM201
        drawn = list(map(random.randrange, [1, 2, 3]))  # expect: CM201
        return state


class GeneratorOfTheClass(Handler[Basket]):
    dice = random.Random(7)

    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"count": self.dice.randint(1, 6)})  # expect: CM205
