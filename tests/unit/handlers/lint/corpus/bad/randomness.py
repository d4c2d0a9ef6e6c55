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


class RandomChoice(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"note": str(random.choice(state.lines))})  # expect: CM201


class UnseededGenerator(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        dice = random.Random()  # expect: CM201
        return state.model_copy(update={"count": dice.randint(1, 6)})


class StarImport(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"count": randint(1, 6)})  # expect: CM201


class Secrets(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"note": str(secrets.token_hex(8))})  # expect: CM202


class BytesOfTheSystem(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"note": str(urandom(4).hex())})  # expect: CM202


class Guid(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"note": str(uuid4())})  # expect: CM203


class GuidOfTheMachine(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"note": str(uuid.uuid1())})  # expect: CM203


class Numpy(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"total": float(np.random.rand())})  # expect: CM204


class NumpyGenerator(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        drawn = np.random.default_rng().integers(6)  # expect: CM204
        return state.model_copy(update={"count": int(drawn)})


class ShuffledLines(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        lines = list(state.lines)
        random.shuffle(lines)  # expect: CM201
        return state.model_copy(update={"lines": tuple(lines)})


class RandomSortKey(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        lines = sorted(state.lines, key=lambda _: random.random())  # expect: CM201
        return state.model_copy(update={"lines": tuple(lines)})


class PassedOn(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        drawn = list(map(random.randrange, [1, 2, 3]))  # expect: CM201
        return state.model_copy(update={"count": sum(drawn)})


class GeneratorOfTheClass(Handler[Basket]):
    dice = random.Random(7)

    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"count": self.dice.randint(1, 6)})  # expect: CM205
