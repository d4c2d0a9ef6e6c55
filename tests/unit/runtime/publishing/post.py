"""A post office: deliveries whose keys stand in a table, a sender that counts, and a clock that is told the time."""

from __future__ import annotations

from eventstore import InterceptedTable, drive
from runtime.publishing.last_hop import (
    Delivered,
    DeliveryKey,
    DeliverySettings,
    IdempotentDelivery,
    TableKeys,
)
from tests.unit.runtime.algorithms.world import Step
from tests.unit.runtime.patience import PATIENCE
from tests.unit.runtime.tables import memory_table
from tests.unit.runtime.worker import ToldClock

CUSTOMER = "17"
AT_MOST_ONCE = DeliverySettings()
AT_LEAST_ONCE = DeliverySettings(frozenset({"*"}))


class Post:
    """Delivers messages to customers, as often as they come."""

    def __init__(self, settings: DeliverySettings) -> None:
        self.settings = settings
        self.table = memory_table()
        self.clock = ToldClock()
        self.sent = 0
        self.calls: list[str] = []
        self.error: Exception | None = None
        self.keys = TableKeys(self.table)
        self._names = 0

    async def deliver(
        self,
        *,
        before: Step | None = None,
        after: Step | None = None,
        message: str = "m-1",
        customer: str = CUSTOMER,
        is_redrive: bool = False,
    ) -> Delivered:
        self.calls.clear()

        async def send() -> None:
            await self._step("send", before)
            if self.error is not None:
                raise self.error
            self.sent += 1
            await self._step("sent", after, note=False)

        table = InterceptedTable(
            self.table,
            before=lambda call, *_: self._step(call, before),
            after=lambda call, *_: self._step(call, after, note=False),
        )
        delivery = IdempotentDelivery(
            TableKeys(table), self.settings, clock=self.clock, new_id=self._new_id, retries=PATIENCE
        )
        return await delivery.deliver(customer, message, send, is_redrive=is_redrive)

    def end(self) -> str | None:
        """Return how the delivery ended that sealed the key, as the key says."""
        key = drive(self.keys.get(DeliveryKey.of(CUSTOMER, "m-1")))
        return None if key is None else key.end

    def unended(self) -> list[tuple[str, str]]:
        async def read() -> list[tuple[str, str]]:
            return [each async for each in self.keys.unended()]

        return drive(read())

    def _new_id(self) -> str:
        self._names += 1
        return f"delivery{self._names:04}"

    async def _step(self, call: str, step: Step | None, *, note: bool = True) -> None:
        if note:
            self.calls.append(call)
        waiting = step(call) if step else None
        if waiting is not None:
            await waiting
