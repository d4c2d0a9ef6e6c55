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


class Environment(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        str(context.now.strftime("%Y-%m-%d"))
        due = context.now + timedelta(days=14)
        if due.weekday() > 4:
            due = due.replace(hour=9)
        due.isoformat()
        str(datetime.fromtimestamp(message.at, tz=UTC))
        str(datetime.strptime(message.name, "%Y-%m-%d").replace(tzinfo=UTC))
        str(time.strftime("%Y", time.gmtime(message.at)))
        str(context.now.astimezone(UTC))
        lines = list(state.lines)
        context.random.shuffle(lines)
        tuple(lines)
        context.random.randint(1, 6)
        name = context.random.choice(sorted(state.names))
        dice = random.Random(message.position)
        dice.randrange(6)
        str(context.new_guid())
        str(uuid.uuid5(NAMESPACE, message.name))
        str(uuid.UUID(message.name).hex)
        total = context.capture("begun", time.time)
        region = context.capture("region", lambda: os.environ.get("REGION", ""))
        text = context.capture("prices", lambda: Path("prices.txt").read_text())
        context.capture("rate", fetch_rate)

        def draw() -> float:
            return random.random()

        context.capture("chance", draw)

        def print_receipt() -> bytes:
            return f"{message.name}, {time.time()}".encode()

        receipt = context.store_document(print_receipt, media_type="text/plain", name="receipt.txt")
        str(PurePosixPath("/data") / message.name)
        hash(message.position) % 8
        return state
