"""The last hop, to a sender that takes part in no transaction: push, mail, text messages, a partner's web service.

After a crash a message was sent once too often or not at all. Each customer has one of two promises:

- *at most once*: the key is sealed, then the message is sent. A crash in between loses the message, and leaves a sealed
  key that says no end.
- *at least once*: the key is locked, the message sent, the key sealed. A crash in between leaves a lock that expires,
  and the next copy sends again. A copy that finds the lock of another delivery is not acknowledged, but tried again
  after its expiry: acknowledged, it would be lost if the other one crashed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from functools import partial
from typing import Any, NamedTuple

from pydantic import PositiveInt, TypeAdapter, ValidationError

from eventstore import connect
from runtime.algorithms.algorithm import NewId, fresh_id
from runtime.clock import Clock, system_clock
from runtime.errors import TransientError, UsageError
from runtime.publishing.keys import DeliveryKey, Key, Keys, KeyState, TableKeys, open_redis
from runtime.retries import RetryPolicy, until_undisturbed
from runtime.versions.properties import placed

_REDIS = ("redis://", "rediss://", "unix://")


@asynccontextmanager
async def open_keys(url: str, table: str) -> AsyncIterator[Keys]:
    """Open the keys behind the url of a store, in a table of this name, or in Redis under names that begin so.

    Raises `UsageError` when no Redis answers, `MissingExtraError` without redis-py, and `StoreUrlError`.
    """
    if url.startswith(_REDIS):
        async with open_redis(url, table) as keys:
            yield keys
        return
    async with connect(url) as store:
        opened = await store.table(table)
        with placed(opened):
            yield TableKeys(opened)


async def weaknesses(url: str, table: str) -> list[str]:
    """Return sentences on what the store of keys may forget, as far as it tells: none of a table."""
    if not url.startswith(_REDIS):
        return []
    async with open_redis(url, table) as keys:
        return await keys.weaknesses()


async def unended(url: str, table: str) -> list[tuple[str, str]]:
    """Return customer and message of each sealed key that says no end; see `Keys.unended`."""
    async with open_keys(url, table) as keys:
        return [each async for each in keys.unended()]


AT_LEAST_ONCE = "AT_LEAST_ONCE_SENDING_CUSTOMERS"
LOCK_LIMIT = ("TTL_LOCK_TIME_LIMIT_MS", "TTL_LOCK_TIME_LIMIT_MILLIS")
TTL = "TTL_IDEMPOTENCY_PER_CUSTOMER_SEC"

DEFAULT_CUSTOMER = "default"
"""The customer of all messages when no field names one."""

Send = Callable[[], Awaitable[None]]
"""Sends the message. Raises when it could not."""

_ALL, _DEFAULT = "*", "default"
_TTL = TypeAdapter(dict[str, PositiveInt])
_MICROSECOND = timedelta(microseconds=1)
_LONGEST_REASON = 1000


@dataclass(frozen=True, slots=True)
class DeliverySettings:
    """To whom messages are sent at least once, and how long keys are kept."""

    at_least_once: frozenset[str] = frozenset()
    """Customers, or "*" for all. The others are sent to at most once."""

    lock_limit: timedelta = timedelta(minutes=2)
    """After which time a lock expires."""

    ttl: Mapping[str, timedelta] = field(default_factory=dict)
    """How long sealed keys are kept, by customer."""

    default_ttl: timedelta = timedelta(hours=6)

    @classmethod
    def read(cls, variables: Mapping[str, str]) -> DeliverySettings:
        """Return the settings in environment variables; what is not set has its default. Raises `UsageError`."""
        named = variables.get(AT_LEAST_ONCE, "").split(",")
        limits = {name: variables[name] for name in LOCK_LIMIT if variables.get(name)}
        if len(set(limits.values())) > 1:
            raise UsageError(f"{' and '.join(limits)} say different things: set one of them.")
        lock_limit = cls().lock_limit
        for name, value in limits.items():
            if not value.strip().isdecimal() or not int(value):
                raise UsageError(
                    f"{name} is {value!r}: give it a whole number of milliseconds, 120000 for two minutes."
                )
            lock_limit = timedelta(milliseconds=int(value))
        try:
            seconds = _TTL.validate_json(variables.get(TTL) or "{}", strict=True)
        except ValidationError as error:
            raise UsageError(
                f"{TTL} is {variables[TTL]!r}: give it an object of customer ids and seconds, such as "
                f'{{"17": 3600, "default": 21600}}.'
            ) from error
        ttl = {customer: timedelta(seconds=each) for customer, each in seconds.items()}
        default_ttl = ttl.pop(_DEFAULT, cls().default_ttl)
        at_least_once = frozenset(customer.strip() for customer in named if customer.strip())
        return cls(at_least_once, lock_limit, ttl, default_ttl)

    def is_at_least_once(self, customer: str) -> bool:
        """Return whether messages are sent to a customer at least once."""
        return _ALL in self.at_least_once or customer in self.at_least_once

    def ttl_of(self, customer: str) -> timedelta:
        """Return how long the sealed keys of a customer are kept."""
        return self.ttl.get(customer, self.default_ttl)


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """A message for a customer, as a function is given it."""

    message_id: str
    """The same whenever the message is sent: a receiver that de-duplicates takes it for a key."""
    type: str
    body: Mapping[str, Any]
    customer: str = DEFAULT_CUSTOMER
    headers: Mapping[str, str] = field(default_factory=dict)
    batch_id: str = ""


class End(StrEnum):
    """How a delivery ended."""

    SENT = "sent"
    NOT_SENT = "not_sent"
    UNKNOWN = "unknown"
    FILTERED = "filtered"
    LOCKED = "locked"


class Delivered(NamedTuple):
    """What became of a delivery."""

    end: End
    why: str | None = None
    try_again_at: int | None = None
    """In microseconds since 1970: the message must not be acknowledged, but redelivered then or later."""

    found: Key | None = None
    """The key of another delivery, which kept this one from sending."""

    @property
    def is_done(self) -> bool:
        """Whether the message can be acknowledged."""
        return self.try_again_at is None


def is_transient(error: Exception) -> bool:
    """Return whether another attempt may succeed after what a sender raised."""
    return isinstance(error, TransientError | TimeoutError | ConnectionError)


class IdempotentDelivery:
    """Sends messages to customers, each at most once or at least once.

    Costs two requests for a message that is sent and for one that is filtered.
    """

    def __init__(
        self,
        keys: Keys,
        settings: DeliverySettings | None = None,
        *,
        is_transient: Callable[[Exception], bool] = is_transient,
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

    async def deliver(
        self, customer: str, message_id: str, send: Send, *, is_redrive: bool = False
    ) -> Delivered:
        """Send a message to a customer, unless that was done before, and return how it ended.

        `is_redrive` sends again although another delivery has ended without sending, or said no end. Raises
        `RetriesExhaustedError` after too many attempts in a row that lost a race or got no answer.
        """
        key, name = DeliveryKey.of(customer, message_id), self.new_id()
        if self.settings.is_at_least_once(customer):
            return await self.at_least_once(key, name, send, is_redrive=is_redrive)
        return await self.at_most_once(key, name, send, is_redrive=is_redrive)

    async def at_most_once(
        self, key: DeliveryKey, name: str, send: Send, *, is_redrive: bool = False
    ) -> Delivered:
        """Seal the key, then send, then write to the key how that ended."""
        ttl = self.settings.ttl_of(key.customer)
        sealed = await self.take(key, name, KeyState.SEALED, ttl, is_redrive=is_redrive)
        if sealed.holder != name:
            return self.found(sealed)
        delivered = (await self.send(send))._replace(try_again_at=None)
        ended = sealed._replace(end=delivered.end.value, why=delivered.why)
        await until_undisturbed(self.retries, partial(self.keys.put, key, ended, sealed))
        return delivered

    async def at_least_once(
        self, key: DeliveryKey, name: str, send: Send, *, is_redrive: bool = False
    ) -> Delivered:
        """Lock the key, send, and seal the key; unlock it when sending failed with a transient error."""
        lock = await self.take(key, name, KeyState.LOCKED, self.settings.lock_limit, is_redrive=is_redrive)
        if lock.holder != name:
            return self.found(lock)
        delivered = await self.send(send)
        if delivered.is_done:
            until = self.clock() + self.settings.ttl_of(key.customer) // _MICROSECOND
            sealed = Key(KeyState.SEALED, name, until, delivered.end.value, delivered.why)
            await until_undisturbed(self.retries, partial(self.keys.put, key, sealed, lock))
        else:
            await until_undisturbed(self.retries, partial(self.keys.delete, key, lock))
        return delivered

    async def take(
        self, key: DeliveryKey, name: str, state: KeyState, period: timedelta, *, is_redrive: bool
    ) -> Key:
        """Store a key for a period, unless there is one that has not expired. Return the one that is stored."""
        attempt = partial(self.try_to_take, key, name, state, period, is_redrive=is_redrive)
        return await until_undisturbed(self.retries, attempt)

    async def try_to_take(
        self, key: DeliveryKey, name: str, state: KeyState, period: timedelta, *, is_redrive: bool
    ) -> Key:
        """Try that once. The key that is stored may be this delivery's own, from a call that was not answered."""
        taken, there = None, None
        while taken is None:
            now = self.clock()
            taken = await self.keys.put(key, Key(state, name, now + period // _MICROSECOND), there)
            if taken is None:
                there = await self.keys.get(key)
                if there is not None and there.expires_at > now:
                    is_over = is_redrive and there.state is KeyState.SEALED and there.end != End.SENT
                    if there.holder == name or not is_over:
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

    def found(self, other: Key) -> Delivered:
        """Return what the key of another delivery means for this one."""
        if other.state is KeyState.SEALED:
            return Delivered(End.FILTERED, "filtered by idempotency", found=other)
        return Delivered(End.LOCKED, "Another delivery of it is under way.", other.expires_at, other)
