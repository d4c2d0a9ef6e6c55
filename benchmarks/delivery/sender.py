"""The process that is killed: it delivers messages to the receiver, as `consistent deliver` does."""

from __future__ import annotations

import asyncio
import http.client
import os
import threading
from dataclasses import dataclass
from datetime import timedelta

from runtime.delivery import DeliveryPolicy, DeliverySettings, OutgoingMessage
from runtime.delivery.deliver import Delivery
from runtime.delivery.key_stores import DEFAULT_TABLE, open_keys
from runtime.delivery.records import RecordFiles

TIMEOUT_SECONDS = 0.5
LOCK_LIMIT = timedelta(seconds=1)
POLICY = DeliveryPolicy(timeout=TIMEOUT_SECONDS, first_pause=0.01, longest_pause=0.1)
STRATEGIES = {
    "at most once": DeliverySettings(lock_limit=LOCK_LIMIT),
    "at least once": DeliverySettings(frozenset("*"), lock_limit=LOCK_LIMIT),
}

_CUSTOMERS = 10
_RECORDS_IN_A_FILE = 25


@dataclass(frozen=True, slots=True)
class Work:
    """What a process is to deliver, and where."""

    strategy: str
    keys: str
    records: str
    messages: int
    port: int
    table: str = DEFAULT_TABLE


class Sender:
    """Sends a message with a request of its own, on a connection of each thread."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._of_thread = threading.local()

    def __call__(self, message: OutgoingMessage) -> None:
        """Send a message."""
        connection = getattr(self._of_thread, "connection", None)
        if connection is None:
            connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=TIMEOUT_SECONDS)
            self._of_thread.connection = connection
        connection.request("POST", f"/{message.message_id}", headers={"Content-Length": "0"})
        connection.getresponse().read()


def work(given: Work) -> None:
    """Deliver all messages that have no record yet."""
    os.nice(5)
    asyncio.run(_work(given))


async def _work(given: Work) -> None:
    records = RecordFiles.open(given.records, most=_RECORDS_IN_A_FILE)
    async with open_keys(given.keys, given.table) as keys:
        delivery = Delivery(
            Sender(given.port),
            keys,
            records,
            name=records.name,
            settings=STRATEGIES[given.strategy],
            policy=POLICY,
        )
        await delivery.run(
            OutgoingMessage(f"m-{number}", "Offered", {}, str(number % _CUSTOMERS))
            for number in range(given.messages)
        )
