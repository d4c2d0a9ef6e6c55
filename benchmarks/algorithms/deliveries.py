"""What a delivery costs with each of its two promises."""

from __future__ import annotations

from statistics import fmean

from benchmarks.algorithms.grid import Grid, amount
from benchmarks.algorithms.metered_table import MeteredTable
from benchmarks.algorithms.play import check_ends, ticking_clock
from eventstore import drive
from runtime.publishing import DeliverySettings
from runtime.publishing.last_hop import End, IdempotentDelivery, Send, TableKeys

PART = "deliveries"
PROMISES = {
    "at most once": (DeliverySettings(), End.FILTERED),
    "at least once": (DeliverySettings(frozenset({"*"})), End.LOCKED),
}
"""The settings of each promise, and how a copy ends that comes while its message is being sent."""

_CUSTOMER = "17"
_MESSAGES = range(50)


class Post:
    """Delivers messages with one promise."""

    def __init__(self, settings: DeliverySettings) -> None:
        self.table = MeteredTable()
        self._delivery = IdempotentDelivery(TableKeys(self.table), settings, clock=ticking_clock())

    async def deliver(self, message_id: str, end: End, send: Send) -> int:
        """Deliver a message and return the requests. Raises `DisagreementError` when that ends otherwise."""
        before = self.table.requests
        delivered = await self._delivery.deliver(_CUSTOMER, message_id, send)
        check_ends([delivered.end], end)
        return self.table.requests - before

    async def copies(self, message_id: str, end: End) -> tuple[int, int, int]:
        """Return the requests for a message, for a copy of it while it is being sent, and for a copy after that."""
        beside = 0

        async def send() -> None:
            nonlocal beside
            beside = await self.deliver(message_id, end, _send)

        both = await self.deliver(message_id, End.SENT, send)
        return both - beside, beside, await self.deliver(message_id, End.FILTERED, _send)


def measure_deliveries() -> Grid:
    """Return the requests for messages and their copies, by promise. Raises `DisagreementError`."""
    return Grid(
        ["requests", "new", "duplicate while it is being sent", "duplicate after that"],
        [[promise, *_requests(settings, end)] for promise, (settings, end) in PROMISES.items()],
    )


def _requests(settings: DeliverySettings, end: End) -> list[str]:
    post = Post(settings)
    counted = [drive(post.copies(f"m-{number}", end)) for number in _MESSAGES]
    return [amount(fmean(column)) for column in zip(*counted, strict=True)]


async def _send() -> None:
    """Send a message, which asks nothing of a table."""
