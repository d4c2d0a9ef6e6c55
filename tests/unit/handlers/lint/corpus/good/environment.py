"""Clock, random numbers and environment, from the context or the message."""

import os
import random
import time
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path, PurePosixPath

import requests

from handlers import Context, Handler, handles
from shop import Basket, Ordered


NAMESPACE = uuid.UUID("6ba7b810-9dad-11d1-80b4-00c04fd430c8")


def fetch_rate() -> float:
    return float(requests.get("https://rates.example").text)


class NowOfTheContext(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"note": str(context.now.strftime("%Y-%m-%d"))})


class TimeArithmetic(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        due = context.now + timedelta(days=14)
        if due.weekday() > 4:
            due = due.replace(hour=9)
        return state.model_copy(update={"note": due.isoformat()})


class TimeOfTheMessage(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"note": str(datetime.fromtimestamp(message.at, tz=UTC))})


class TimeFromText(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"note": str(datetime.strptime(message.name, "%Y-%m-%d").replace(tzinfo=UTC))})


class FormattedTime(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"note": str(time.strftime("%Y", time.gmtime(message.at)))})


class NamedZone(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"note": str(context.now.astimezone(UTC))})


class ChanceOfTheContext(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        lines = list(state.lines)
        context.random.shuffle(lines)
        return state.model_copy(update={"lines": tuple(lines), "count": context.random.randint(1, 6)})


class ChanceOfASet(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        name = context.random.choice(sorted(state.names))
        return state.model_copy(update={"note": name})


class SeededGenerator(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        dice = random.Random(message.position)
        return state.model_copy(update={"count": dice.randrange(6)})


class GuidOfTheContext(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"note": str(context.new_guid())})


class GuidOfAName(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"note": str(uuid.uuid5(NAMESPACE, message.name))})


class GuidFromText(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"note": str(uuid.UUID(message.name).hex)})


class CapturedClock(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        total = context.capture("begun", time.time)
        return state.model_copy(update={"total": total})


class CapturedEnvironment(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        region = context.capture("region", lambda: os.environ.get("REGION", ""))
        return state.model_copy(update={"note": region})


class CapturedFile(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        text = context.capture("prices", lambda: Path("prices.txt").read_text())
        return state.model_copy(update={"note": text})


class CapturedService(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"total": context.capture("rate", fetch_rate)})


class CapturedByAFunction(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        def draw() -> float:
            return random.random()

        return state.model_copy(update={"total": context.capture("chance", draw)})


class StoredDocument(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        def print_receipt() -> bytes:
            return f"{message.name}, {time.time()}".encode()

        receipt = context.store_document(print_receipt, media_type="text/plain", name="receipt.txt")
        return state.model_copy(update={"note": receipt.name})


class PurePath(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"note": str(PurePosixPath("/data") / message.name)})


class HashOfAnInteger(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"count": hash(message.position) % 8})
