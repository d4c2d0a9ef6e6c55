"""How much a receiver is asked for, and how patiently."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from runtime.algorithms.last_hop.settings import DeliverySettings
from runtime.delivery.gate import BreakerPolicy
from runtime.errors import UsageError


@dataclass(frozen=True, slots=True)
class DeliveryPolicy:
    """What a delivery may ask of its receiver, and how it goes on after an error.

    At most `concurrency` messages are being sent at a time, and `per_second` in a second. A send is given up after
    `timeout` seconds. A message to be sent at least once is tried `attempts` times, after pauses that double from
    `first_pause` to `longest_pause` seconds, each drawn from its upper half, or as long as the receiver asks.
    """

    concurrency: int = 8
    per_second: float | None = None
    timeout: float = 30.0
    attempts: int = 5
    first_pause: float = 0.5
    longest_pause: float = 60.0
    breaker: BreakerPolicy = field(default_factory=BreakerPolicy)

    def check(self, settings: DeliverySettings) -> None:
        """Raise `UsageError` when a send may take longer than its lock lasts: another would send beside it."""
        if timedelta(seconds=self.timeout) >= settings.lock_limit:
            message = (
                f"A send may take {self.timeout:g} s, but its lock lasts {settings.lock_limit.total_seconds():g} s "
                f"only, and then it may be sent twice: lower the time-out of a send, or raise TTL_LOCK_TIME_LIMIT_MS."
            )
            raise UsageError(message)
