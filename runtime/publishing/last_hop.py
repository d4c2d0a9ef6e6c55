"""Idempotent delivery through senders without transactions: push, mail, text messages, a partner's web service.

- *At most once* seals the key, then sends. A crash in between loses the message, and its sealed key has no result.
- *At least once* locks the key, sends, then seals it. After a crash the lock expires, and the next copy sends again.

A key is *unlocked* (absent or expired), *locked* (0) while a delivery sends, or *sealed* (1). Writes are conditional on
the key that was read, so only the holder of a lock seals or unlocks it. Keys are in a table or in Redis.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import KW_ONLY, dataclass, field
from datetime import timedelta
from enum import IntEnum
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from urllib.parse import unquote

from eventstore import Operation, Row, RowError, StoreUnavailableError, Table, Value, connect, pages
from eventstore.keys import escape
from eventstore.port import Sleep, sleep_beside
from runtime.algorithms.algorithm import NewId, fresh_id
from runtime.clock import Clock, system_clock, to_datetime, to_microseconds
from runtime.errors import MissingExtraError, StoredDataError, TargetError, TransientError, UsageError
from runtime.messages.envelope import FIRST, LAST, IdKey, canonical, id_key, id_text, row_key
from runtime.publishing.publisher import DEFAULT_CUSTOMER, DeliverySettings, Result
from runtime.retries import RetryPolicy, until_undisturbed
from runtime.versions.properties import (
    error_location,
    expect,
    number,
    reading_row,
    rows_between,
    text,
    time,
    written,
)

if TYPE_CHECKING:
    from redis.asyncio import Redis

PARTITION = "deliveries."  # begins the partition keys of customers


class KeyState(IntEnum):
    """The state of a stored key.

    To send at least once, a delivery locks the key, sends, and seals the key. To send at most once, it seals the key,
    and then sends.
    """

    LOCKED = 0
    SEALED = 1


class DeliveryKey(NamedTuple):
    """Identifies the delivery of one message to one customer, so that attempts at the delivery find the same `Key`."""

    customer: str
    message: IdKey

    @classmethod
    def of(cls, customer: str, message_id: str) -> DeliveryKey:
        """Return the key of a message, which is the same for all spellings of its id.

        Raises `InvalidKeyError` for a customer whose partition key is too long or invalid text.
        """
        escape(PARTITION + customer)
        return cls(customer, id_key(canonical(message_id)))


class Key(NamedTuple):
    """The stored value of a `DeliveryKey`: who locked or sealed the key, until when, and with which result."""

    state: KeyState
    holder: str  # the delivery that locked or sealed the key
    expires_at: int  # in microseconds since 1970 UTC
    end: str | None = None  # the `Result` of the delivery that sealed the key; None if it has not ended
    why: str | None = None
    etag: str = ""

    @property
    def is_unended(self) -> bool:
        """Whether the key is sealed without a result. Its delivery is in progress, or the process died."""
        return self.state is KeyState.SEALED and self.end is None


class Keys(Protocol):
    """A store of delivery keys with atomic calls. A call that raises `StoreUnavailableError` may have taken effect."""

    @property
    def sleep(self) -> Sleep:
        """The function that waits before a retry."""

    async def get(self, key: DeliveryKey) -> Key | None:
        """Return the stored key, even if it has expired, or None if no key is stored."""

    async def put(self, key: DeliveryKey, new: Key, over: Key | None = None) -> Key | None:
        """Durably store `new` if the stored key is `over` (None: no key). Return `new` as stored, or None if not."""

    async def delete(self, key: DeliveryKey, found: Key) -> None:
        """Delete a key, unless it has changed since it was read."""

    def unended(self) -> AsyncIterator[tuple[str, str]]:
        """Yield the customer and message id of each at-most-once send that began but has no recorded result."""


class TableKeys:
    """Delivery keys in a table. A call costs one request. `unended` costs one request for every 1,000 keys."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.sleep = sleep_beside(table)

    async def get(self, key: DeliveryKey) -> Key | None:
        row = await self.table.get(PARTITION + key.customer, row_key(key.message))
        return None if row is None else read_key(row)

    async def put(self, key: DeliveryKey, new: Key, over: Key | None = None) -> Key | None:
        expires_at, name = to_datetime(new.expires_at), row_key(key.message)
        row: dict[str, Value] = {"Value": int(new.state), "Holder": new.holder, "ExpiresAt": expires_at}
        row |= {name: text for name, text in (("End", new.end), ("Why", new.why)) if text is not None}
        change = written(name, row, over and over.etag)
        try:
            (etag,) = await self.table.transact(PARTITION + key.customer, [change])
        except RowError:
            # This delivery's own key may be there, from a request without a response: make it durable.
            await self.table.barrier()
            return None
        await self.table.barrier()
        return new._replace(etag=etag)

    async def delete(self, key: DeliveryKey, found: Key) -> None:
        with suppress(RowError):
            deletion = Operation.delete(row_key(key.message), found.etag)
            await self.table.transact(PARTITION + key.customer, [deletion])
        await self.table.barrier()

    async def unended(self) -> AsyncIterator[tuple[str, str]]:
        # "/" is the successor of ".", so the range holds exactly the keys with the prefix.
        async for page in pages(partial(self.table.scan, None, PARTITION, "deliveries/")):
            for row in page.rows:
                if read_key(row).is_unended:
                    yield row.partition_key.removeprefix(PARTITION), row.row_key.removeprefix("ID-T-")

    async def forget_expired(self, customer: str, now: int) -> int:
        """Delete a customer's expired keys, and return their number.

        Costs one request for every 1,000 keys, and one for each deletion.
        """
        forgotten = 0
        async for row in rows_between(self.table, PARTITION + customer, FIRST, LAST):
            if read_key(row).expires_at <= now:
                with suppress(RowError):
                    await self.table.transact(row.partition_key, [Operation.delete(row.row_key, row.etag)])
                    forgotten += 1
        return forgotten


def read_key(row: Row) -> Key:
    """Parse the row of a key. Raises `StoredDataError` if the row is corrupt."""
    values = row.properties
    with reading_row("The key of a delivery", row):
        key = Key(
            KeyState(number(values, "Value")),
            text(values, "Holder"),
            to_microseconds(time(values, "ExpiresAt")),
            expect(values.get("End"), str, None),
            expect(values.get("Why"), str, None),
            row.etag,
        )
        if key.why is not None and key.end is None:
            raise ValueError("it has a reason (Why) without an end (End)")
        return key


class RedisKeys:
    """Delivery keys in Redis, as JSON arrays under names with a prefix. Redis deletes expired keys."""

    def __init__(self, redis: Redis, prefix: str) -> None:
        self._redis = redis
        self._prefix = prefix
        self.sleep: Sleep = asyncio.sleep

    async def get(self, key: DeliveryKey) -> Key | None:
        with _translated_errors():
            value = await self._redis.get(self._name(key))
        return None if value is None else _read(value, self._name(key))

    async def put(self, key: DeliveryKey, new: Key, over: Key | None = None) -> Key | None:
        value = json.dumps([int(new.state), new.holder, new.expires_at, new.end, new.why])
        until = -(-new.expires_at // 1000)
        if over is None:
            with _translated_errors():
                put = await self._redis.set(self._name(key), value, nx=True, pxat=until)
        else:
            put = await self._change(key, over, value, until)
        return new._replace(etag=value) if put else None

    async def delete(self, key: DeliveryKey, found: Key) -> None:
        await self._change(key, found)

    async def unended(self) -> AsyncIterator[tuple[str, str]]:
        """Implement `Keys.unended`. Costs one request per key, and one more for every 10 names in the database."""
        with _translated_errors():
            async for name in self._redis.scan_iter(match=f"{self._prefix}:*"):
                value = await self._redis.get(name)
                found = None if value is None else _read(value, name)
                if found is not None and found.is_unended:
                    customer, _, message = name.removeprefix(f"{self._prefix}:").partition(":")
                    yield unquote(customer), message

    async def weaknesses(self) -> list[str]:
        """Return warnings about settings with which this Redis may lose keys."""
        with _translated_errors():
            said: dict[str, Any] = await self._redis.info("persistence") | await self._redis.info("memory")
        found = []
        if not said.get("aof_enabled"):
            found.append(
                "This Redis keeps keys only in memory (appendonly is off): if it crashes, messages may be sent again, "
                "even with at most once. Set appendonly to yes."
            )
        policy = said.get("maxmemory_policy", "noeviction")
        if said.get("maxmemory") and policy != "noeviction":
            found.append(
                f"This Redis evicts keys when its memory is full (maxmemory-policy is {policy}): their messages may be "
                f"sent again. Set it to noeviction."
            )
        return found

    async def _change(self, key: DeliveryKey, found: Key, value: str | None = None, until: int = 0) -> bool:
        """Set the stored value of `key`, or delete it if `value` is None. Return False if `found` is no longer stored.

        `until`: the time when the new value expires, in milliseconds since 1970 UTC.
        """
        from redis.exceptions import WatchError  # noqa: PLC0415 - its extra

        name = self._name(key)
        with _translated_errors():
            async with self._redis.pipeline() as pipe:
                await pipe.watch(name)
                if await pipe.get(name) != found.etag:
                    return False
                pipe.multi()  # type: ignore[no-untyped-call]
                pipe.delete(name) if value is None else pipe.set(name, value, pxat=until)
                try:
                    await pipe.execute()
                except WatchError:
                    return False
        return True

    def _name(self, key: DeliveryKey) -> str:
        # Escaped, or "a:b" with "c" would collide with "a" and "b:c".
        customer = key.customer.replace("%", "%25").replace(":", "%3A")
        return f"{self._prefix}:{customer}:{id_text(key.message)}"


@asynccontextmanager
async def open_redis(url: str, prefix: str) -> AsyncIterator[RedisKeys]:
    """Context manager that connects to Redis and yields the keys.

    Raises `UsageError` if Redis does not answer or rejects the URL.
    """
    try:
        from redis.asyncio import Redis  # noqa: PLC0415 - its extra
        from redis.asyncio.retry import Retry  # noqa: PLC0415 - its extra
        from redis.backoff import NoBackoff  # noqa: PLC0415 - its extra
        from redis.exceptions import AuthenticationError, ConnectionError, RedisError, TimeoutError  # noqa: A004, PLC0415 - its extra
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"Keys in Redis need {error.name}: pip install 'consistent-messaging[publish]'."
        ) from error
    try:
        limits: dict[str, Any] = {"socket_timeout": 5.0, "socket_connect_timeout": 5.0}
        redis = Redis.from_url(url, decode_responses=True, retry=Retry(NoBackoff(), 0), **limits)
    except ValueError:  # the error's text may contain the password
        raise UsageError(
            "--keys is not a valid Redis URL. Use redis://USER:PASSWORD@HOST:PORT/0, with %25 for %, %40 for @, "
            "%2F for / and %20 for a blank in the user or password."
        ) from None
    async with redis:
        try:
            ping: Any = redis.ping()
            await ping
        except AuthenticationError as error:
            raise UsageError(f"Redis refuses the user or password of --keys: {error}") from error
        except (ConnectionError, TimeoutError) as error:
            at = redis.connection_pool.connection_kwargs
            address = at.get("path") or f"{at.get('host', 'localhost')}:{at.get('port', 6379)}"
            raise UsageError(
                f"Redis does not answer at {address}. Start it (redis-server --appendonly yes --appendfsync always), "
                f"correct --keys, or omit it to keep the keys in the table."
            ) from error
        except RedisError as error:
            raise UsageError(f"Redis refuses the URL of --keys: {error}.") from error
        yield RedisKeys(redis, prefix)


@contextmanager
def _translated_errors() -> Iterator[None]:
    """Context manager that converts errors of Redis to `StoreUnavailableError` (no answer) or `TargetError`."""
    from redis.exceptions import ConnectionError, RedisError, TimeoutError  # noqa: A004, PLC0415 - its extra

    try:
        yield
    except (ConnectionError, TimeoutError) as error:
        raise StoreUnavailableError(f"Redis did not answer: {error}", outcome_unknown=True) from error
    except RedisError as error:
        raise TargetError(f"Redis refused a command: {error}.") from error


def _read(value: str, name: str) -> Key:
    try:
        state, holder, expires_at, end, why = json.loads(value)
        return Key(KeyState(state), str(holder), int(expires_at), end, why, value)
    except (ValueError, TypeError) as error:
        raise StoredDataError(f"The key of a delivery cannot be read: {error!r}.", name) from error


_REDIS = ("redis://", "rediss://", "unix://")


@asynccontextmanager
async def open_keys(url: str, table: str) -> AsyncIterator[Keys]:
    """Context manager that opens the keys in a table, or in Redis with `table` as the prefix of their names.

    Raises `StoreUrlError` for an invalid URL, or `UsageError` if Redis does not answer or rejects the URL.
    """
    if url.startswith(_REDIS):
        async with open_redis(url, table) as keys:
            yield keys
        return
    async with connect(url) as store:
        opened = await store.table(table)
        with error_location(opened):
            yield TableKeys(opened)


async def weaknesses(url: str, table: str) -> list[str]:
    """Return warnings about settings with which Redis may lose keys. For keys in a table, return an empty list."""
    if not url.startswith(_REDIS):
        return []
    async with open_redis(url, table) as keys:
        return await keys.weaknesses()


async def unended(url: str, table: str) -> list[tuple[str, str]]:
    """Return the results of `Keys.unended` for the keys at a URL. Raises like `open_keys`."""
    async with open_keys(url, table) as keys:
        return [each async for each in keys.unended()]


Send = Callable[[], Awaitable[None]]  # sends the message, or raises

_MICROSECOND = timedelta(microseconds=1)
_LONGEST_REASON = 1000


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """The message that a sending function receives as its argument. `body` is parsed JSON."""

    message_id: str
    """Does not change between attempts, so that receivers can deduplicate."""
    type: str
    body: Mapping[str, Any]
    customer: str = DEFAULT_CUSTOMER
    headers: Mapping[str, str] = field(default_factory=dict)
    batch_id: str = ""


class Delivered(NamedTuple):
    """What an attempt to deliver a message returns: how the attempt ended, why, and when to redeliver the message."""

    end: Result
    why: str | None = None
    try_again_at: int | None = None
    """If set, do not acknowledge the message. Redeliver it at this time (microseconds since 1970 UTC) or later."""

    found: Key | None = None  # the key of another delivery that prevented this one
    error: Exception | None = None  # raised by the sender

    @property
    def is_done(self) -> bool:
        """Whether the message can be acknowledged."""
        return self.try_again_at is None


def is_transient(error: Exception) -> bool:
    """Return whether a retry may succeed after this error of a sender."""
    return isinstance(error, TransientError | TimeoutError | ConnectionError)


@dataclass(eq=False)
class IdempotentDelivery:
    """Sends messages to customers at most once or at least once. A delivery costs two requests."""

    keys: Keys
    settings: DeliverySettings = field(default_factory=DeliverySettings)
    _: KW_ONLY
    is_transient: Callable[[Exception], bool] = is_transient
    clock: Clock = system_clock
    new_id: NewId = fresh_id
    retries: RetryPolicy = field(default_factory=RetryPolicy)

    def __post_init__(self) -> None:
        self.retries = self.retries.sleeping(self.keys.sleep)

    async def deliver(
        self, customer: str, message_id: str, send: Send, *, is_redrive: bool = False
    ) -> Delivered:
        """Send a message to a customer, unless the key says that the message was sent.

        With `is_redrive`, send the message again if an earlier delivery failed or recorded no result. Raises
        `RetriesExhaustedError` if the key cannot be stored.
        """
        deliver = self.at_least_once if self.settings.is_at_least_once(customer) else self.at_most_once
        return await deliver(DeliveryKey.of(customer, message_id), self.new_id(), send, is_redrive=is_redrive)

    async def at_most_once(
        self, key: DeliveryKey, name: str, send: Send, *, is_redrive: bool = False
    ) -> Delivered:
        """Seal the key as its holder `name`, send, then record the result. Send nothing if an earlier key exists."""
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
        """Lock the key as its holder `name`, send, then seal the key, or unlock the key after a transient error."""
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
        """Store a key that expires after `period`, unless an unexpired key exists. Return the key that is now stored.

        The key's holder is `name` if this call stored it. A redrive also replaces a sealed key whose result is not
        `SENT`.
        """

        async def attempt() -> Key:
            there = None
            while True:
                now = self.clock()
                taken = await self.keys.put(key, Key(state, name, now + period // _MICROSECOND), there)
                if taken is not None:
                    return taken
                there = await self.keys.get(key)
                if there is not None and there.expires_at > now:
                    is_over = is_redrive and there.state is KeyState.SEALED and there.end != Result.SENT
                    if there.holder == name or not is_over:
                        return there

        return await until_undisturbed(self.retries, attempt)

    async def send(self, send: Send) -> Delivered:
        """Call a sender, and convert its errors to a result. Sets `try_again_at` only after a transient error."""
        try:
            await send()
        except Exception as error:  # noqa: BLE001 - it is the sender's, and may raise anything
            # A message that timed out may have arrived.
            end = Result.UNKNOWN if isinstance(error, TimeoutError) else Result.NOT_SENT
            why = f"{type(error).__name__}: {error}"[:_LONGEST_REASON]
            return Delivered(end, why, self.clock() if self.is_transient(error) else None, error=error)
        return Delivered(Result.SENT)

    def found(self, other: Key) -> Delivered:
        """Return the result of a delivery that sent nothing, because `other` is the key of an earlier delivery."""
        if other.state is KeyState.SEALED:
            return Delivered(Result.FILTERED, "filtered by idempotency", found=other)
        # Not acknowledged: it would be lost if the holder of the lock crashed.
        return Delivered(Result.LOCKED, "Another delivery of it is under way.", other.expires_at, other)
