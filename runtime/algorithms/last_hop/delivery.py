"""Delivery over the last hop, by a sender that takes part in no transaction: push, mail, text messages.

After a crash a message was sent once too often or not at all. Each customer has one of two promises:

- *at most once*: the key is sealed, then the message is sent. A crash in between loses the message, and leaves a sealed
  key without a record.
- *at least once*: the key is locked, the message sent, the key sealed. A crash in between leaves a lock that expires,
  and the next copy sends again. A copy that finds the lock of another delivery is not acknowledged, but tried again
  after its expiry: acknowledged, it would be lost if the other one crashed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from enum import StrEnum
from functools import partial
from typing import NamedTuple

from runtime.algorithms.fresh_ids import NewId, fresh_id
from runtime.algorithms.last_hop.keys import DeliveryKey, Key, Keys, KeyState, Record
from runtime.algorithms.last_hop.settings import DeliverySettings
from runtime.clock import Clock, system_clock
from runtime.retries import RetryPolicy, until_undisturbed

Send = Callable[[], Awaitable[None]]
"""Sends the message. Raises when it could not."""

IsTransient = Callable[[Exception], bool]

_MICROSECOND = timedelta(microseconds=1)
_LONGEST_REASON = 1000


class End(StrEnum):
    """How a delivery ended."""

    SENT = "sent"
    NOT_SENT = "not_sent"
    UNKNOWN = "unknown"
    FILTERED = "filtered"
    LOCKED = "locked"


class Delivered(NamedTuple):
    """What became of a delivery.

    `try_again_at`, in microseconds since 1970, says that the message must not be acknowledged, but redelivered then or
    later. `found` is the key of another delivery, which kept this one from sending.
    """

    end: End
    why: str | None = None
    try_again_at: int | None = None
    found: Key | None = None

    @property
    def is_done(self) -> bool:
        """Whether the message can be acknowledged."""
        return self.try_again_at is None


def is_transient_error(error: Exception) -> bool:
    """Say whether an error is a time-out or a lost connection, so that another attempt may succeed."""
    return isinstance(error, TimeoutError | ConnectionError)


class IdempotentDelivery:
    """Sends messages to customers, each at most once or at least once.

    Every delivery that runs to its end leaves a record. Costs two requests for one that is sent, three for one that is
    filtered.
    """

    def __init__(
        self,
        keys: Keys,
        settings: DeliverySettings | None = None,
        *,
        is_transient: IsTransient = is_transient_error,
        clock: Clock = system_clock,
        new_id: NewId = fresh_id,
        retries: RetryPolicy | None = None,
    ) -> None:
        self.keys = keys
        self.settings = settings or DeliverySettings()
        self.is_transient = is_transient
        self.clock = clock
        self.new_id = new_id
        self.retries = (retries or RetryPolicy()).sleeping(keys.sleep)

    async def deliver(self, customer: str, message_id: str, send: Send) -> Delivered:
        """Send a message to a customer, unless that was done before, and return how it ended.

        Raises `RetriesExhaustedError` after too many attempts in a row that lost a race or got no answer.
        """
        key, name = DeliveryKey.of(customer, message_id), self.new_id()
        if self.settings.is_at_least_once(customer):
            return await self.at_least_once(key, name, send)
        return await self.at_most_once(key, name, send)

    async def at_most_once(self, key: DeliveryKey, name: str, send: Send) -> Delivered:
        """Register the key, then send."""
        taken = await self.take(key, name, KeyState.SEALED, self.settings.ttl_of(key.customer))
        if taken.holder != name:
            return await self.filtered(key, name, taken)
        delivered = await self.send(send)
        await self.record(key, name, delivered)
        return delivered._replace(try_again_at=None)

    async def at_least_once(self, key: DeliveryKey, name: str, send: Send) -> Delivered:
        """Lock the key, send, and seal the key; unlock it when sending failed with a transient error."""
        lock = await self.take(key, name, KeyState.LOCKED, self.settings.lock_limit)
        if lock.holder != name and lock.state is KeyState.SEALED:
            return await self.filtered(key, name, lock)
        if lock.holder != name:
            return Delivered(End.LOCKED, "Another delivery of it is under way.", lock.expires_at, lock)
        delivered = await self.send(send)
        await until_undisturbed(self.retries, partial(self.close, key, name, lock, delivered))
        return delivered

    async def take(self, key: DeliveryKey, name: str, state: KeyState, period: timedelta) -> Key:
        """Store a key for a period, unless there is one that has not expired. Return the one that is stored."""
        return await until_undisturbed(self.retries, partial(self.try_to_take, key, name, state, period))

    async def try_to_take(self, key: DeliveryKey, name: str, state: KeyState, period: timedelta) -> Key:
        """Try that once. The key that is stored may be this delivery's own, from a call that was not answered."""
        taken, there = None, None
        while taken is None:
            now = self.clock()
            taken = await self.keys.put(key, state, name, now + period // _MICROSECOND, over=there)
            if taken is None:
                there = await self.keys.get(key)
                if there is not None and there.expires_at > now:
                    return there
        return taken

    async def send(self, send: Send) -> Delivered:
        """Send, and return how that ended."""
        try:
            await send()
        except Exception as error:  # noqa: BLE001 - it is the sender's, and may raise anything
            # What timed out may have arrived.
            end = End.UNKNOWN if isinstance(error, TimeoutError) else End.NOT_SENT
            why = f"{type(error).__name__}: {error}"[:_LONGEST_REASON]
            return Delivered(end, why, self.clock() if self.is_transient(error) else None)
        return Delivered(End.SENT)

    async def close(self, key: DeliveryKey, name: str, lock: Key, delivered: Delivered) -> None:
        """Record the end and seal or unlock the key in one transaction; record only when another holds the lock now."""
        sealed_until = self.clock() + self.settings.ttl_of(key.customer) // _MICROSECOND
        record = self.as_record(delivered)
        if not await self.keys.end(key, lock, sealed_until if delivered.is_done else None, record, name):
            await self.keys.end(key, None, None, record, name)

    async def filtered(self, key: DeliveryKey, name: str, found: Key) -> Delivered:
        """Record that a message was not sent, because another delivery of it sealed the key."""
        delivered = Delivered(End.FILTERED, "filtered by idempotency", found=found)
        await self.record(key, name, delivered)
        return delivered

    async def record(self, key: DeliveryKey, name: str, delivered: Delivered) -> None:
        """Record an end alone."""
        record = self.as_record(delivered)
        await until_undisturbed(self.retries, partial(self.keys.end, key, None, None, record, name))

    def as_record(self, delivered: Delivered) -> Record:
        """Return what is recorded of an end."""
        return Record(delivered.end.value, delivered.why, self.clock())
