"""A post office: a sender that does what it is told to, keys in memory, and records in a folder."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path

import pyarrow.parquet as pq

from runtime.algorithms.last_hop.keys import DeliveryKeys
from runtime.algorithms.last_hop.settings import DeliverySettings
from runtime.delivery import BreakerPolicy, DeliveryPolicy, OutgoingMessage, Sender
from runtime.delivery.deliver import Delivery
from runtime.delivery.records import RecordFiles
from tests.unit.runtime.tables import memory_table

AT_MOST_ONCE = DeliverySettings()
AT_LEAST_ONCE = DeliverySettings(frozenset("*"))
QUICK = DeliveryPolicy(
    first_pause=0.001, longest_pause=0.002, breaker=BreakerPolicy(first=0.001, longest=0.002, give_up_after=5)
)


def message(number: int = 1, customer: str = "17") -> OutgoingMessage:
    return OutgoingMessage(f"m-{number}", "Won", {"name": "Ada"}, customer, batch_id="first")


class Office:
    """Delivers messages; `errors` are raised one after another by the sender, None for a message that is taken."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.keys = DeliveryKeys(memory_table())
        self.errors: list[Exception | None] = []
        self.sent: list[str] = []
        self.calls = 0

    async def send(self, message: OutgoingMessage) -> None:
        self.calls += 1
        await asyncio.sleep(0)
        error = self.errors.pop(0) if self.errors else None
        if error is not None:
            raise error
        self.sent.append(message.message_id)

    def delivery(
        self,
        settings: DeliverySettings = AT_MOST_ONCE,
        *,
        policy: DeliveryPolicy = QUICK,
        sender: Sender | None = None,
        records: str = "records",
        stopped: asyncio.Event | None = None,
    ) -> Delivery:
        files = RecordFiles.open(self.folder / records)
        return Delivery(
            sender or self.send,
            self.keys,
            files,
            name=files.name,
            settings=settings,
            policy=policy,
            stopped=stopped,
        )

    def deliver(
        self,
        messages: Iterable[OutgoingMessage] = (message(),),
        settings: DeliverySettings = AT_MOST_ONCE,
        **given,
    ):
        """Deliver messages, and return the counts of the results."""
        return asyncio.run(self.delivery(settings, **given).run(messages))

    def records(self, name: str = "records") -> list[dict]:
        """Return the records as any reader of Parquet finds them."""
        folder = self.folder / name
        return pq.read_table(folder).to_pylist() if folder.exists() else []
