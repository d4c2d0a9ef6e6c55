"""Keys of the last hop, one for each customer and message, in a table or in Redis.

A key is *unlocked* when it is absent or has expired, *locked* (0) while a delivery sends, or *sealed* (1). It names the
delivery that holds it, and once sealed says how that one ended. Every change is bound to the key as it was read, so
only the holder of a lock seals or unlocks it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from enum import IntEnum
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from eventstore import Operation, Row, RowError, StoreUnavailableError, Table, Value, pages
from eventstore.port import Sleep, sleep_beside
from runtime.clock import to_datetime, to_microseconds
from runtime.errors import MissingExtraError, StoredDataError, TargetError, UsageError
from runtime.messages.envelope import FIRST, LAST, IdKey, canonical, id_key, id_text, row_key
from runtime.versions.properties import expect, number, reading_row, text, time

if TYPE_CHECKING:
    from redis.asyncio import Redis

PARTITION = "deliveries."
"""Begins the partition keys of customers."""

_PARTITIONS_END = "deliveries/"
"""The first partition key after those of customers."""


class KeyState(IntEnum):
    """What the value of a key says."""

    LOCKED = 0
    SEALED = 1


class DeliveryKey(NamedTuple):
    """One message to one customer."""

    customer: str
    message: IdKey

    @classmethod
    def of(cls, customer: str, message_id: str) -> DeliveryKey:
        """Return the key for a message id in any spelling."""
        return cls(customer, id_key(canonical(message_id)))


class Key(NamedTuple):
    """A key as it is stored."""

    state: KeyState
    holder: str
    """The delivery that locked or sealed it."""
    expires_at: int
    """In microseconds since 1970 UTC."""
    end: str | None = None
    """How the delivery ended that sealed it, None while it sends, and for ever if it died."""
    why: str | None = None
    etag: str = ""


class Keys(Protocol):
    """What a store of keys does. Each call is atomic, and reads see what was written before.

    A store that did not answer raises `StoreUnavailableError`, and may have done what it was asked for.
    """

    @property
    def sleep(self) -> Sleep:
        """How to wait before a call is repeated."""

    async def get(self, key: DeliveryKey) -> Key | None:
        """Read a key. One that has expired may still be there."""

    async def put(self, key: DeliveryKey, new: Key, over: Key | None = None) -> Key | None:
        """Store a key if there is none, or over the one that was read; None when another is there.

        What is there on return is durable.
        """

    async def delete(self, key: DeliveryKey, found: Key) -> None:
        """Delete a key, unless it is another by now than the one that was read."""

    def unended(self) -> AsyncIterator[tuple[str, str]]:
        """Yield customer and message of each sealed key that says no end.

        At most once these are deliveries whose process died while it sent, and those that send now.
        """


class TableKeys:
    """Keys in a table, a partition for each customer. Each call is one request; `unended` one for each 1,000 keys."""

    def __init__(self, table: Table) -> None:
        self.table = table

    @property
    def sleep(self) -> Sleep:
        """How to wait beside the table."""
        return sleep_beside(self.table)

    async def get(self, key: DeliveryKey) -> Key | None:
        """Read a key."""
        row = await self.table.get(PARTITION + key.customer, row_key(key.message))
        return None if row is None else read_key(row)

    async def put(self, key: DeliveryKey, new: Key, over: Key | None = None) -> Key | None:
        """Store a key if there is none, or over the one that was read; None when another is there."""
        name = row_key(key.message)
        properties: dict[str, Value] = {
            "Value": int(new.state),
            "Holder": new.holder,
            "ExpiresAt": to_datetime(new.expires_at),
        }
        if new.end is not None:
            properties["End"] = new.end
        if new.why is not None:
            properties["Why"] = new.why
        change = Operation.insert(name, properties)
        if over is not None:
            change = Operation.replace(name, properties, over.etag)
        try:
            (etag,) = await self.table.transact(PARTITION + key.customer, [change])
        except RowError:
            # The key that is there may be this delivery's own, from a call that was not answered.
            await self.table.barrier()
            return None
        await self.table.barrier()
        return new._replace(etag=etag)

    async def delete(self, key: DeliveryKey, found: Key) -> None:
        """Delete a key, unless it is another by now."""
        with suppress(RowError):
            deletion = Operation.delete(row_key(key.message), found.etag)
            await self.table.transact(PARTITION + key.customer, [deletion])
        await self.table.barrier()

    async def unended(self) -> AsyncIterator[tuple[str, str]]:
        """Yield customer and message of each sealed key that says no end."""
        async for page in pages(partial(self.table.scan, None, PARTITION, _PARTITIONS_END)):
            for row in page.rows:
                found = read_key(row)
                if found.state is KeyState.SEALED and found.end is None:
                    yield row.partition_key.removeprefix(PARTITION), row.row_key.removeprefix("ID-T-")

    async def forget_expired(self, customer: str, now: int) -> int:
        """Delete the keys of a customer that have expired by a time, in microseconds. Return how many.

        Costs a request for each 1,000 keys, and one for each that is deleted.
        """
        forgotten = 0
        async for page in pages(partial(self.table.query, PARTITION + customer, FIRST, LAST)):
            for row in page.rows:
                if read_key(row).expires_at <= now:
                    with suppress(RowError):
                        deletion = Operation.delete(row.row_key, row.etag)
                        await self.table.transact(row.partition_key, [deletion])
                        forgotten += 1
        return forgotten


def read_key(row: Row) -> Key:
    """Return the key that a row holds. Raises `StoredDataError`."""
    values = row.properties
    with reading_row("The key of a delivery", row):
        found = Key(
            KeyState(number(values, "Value")),
            text(values, "Holder"),
            to_microseconds(time(values, "ExpiresAt")),
            expect(values.get("End"), str, None),
            expect(values.get("Why"), str, None),
            row.etag,
        )
        if found.why is not None and found.end is None:
            raise ValueError("it says why, but not how the delivery ended")
        return found


_SECONDS = 5.0


class RedisKeys:
    """Keys in a Redis database, under names that begin with a prefix. Redis drops them when they expire.

    A value is the JSON array of a key's fields. It is written if nothing is there (`SET NX`), or if what is there is
    still what was read (`WATCH`, `MULTI`).
    """

    def __init__(self, redis: Redis, prefix: str) -> None:
        self._redis = redis
        self._prefix = prefix

    @property
    def sleep(self) -> Sleep:
        """How to wait: other deliveries go on."""
        return asyncio.sleep

    async def get(self, key: DeliveryKey) -> Key | None:
        """Read a key."""
        with _explained():
            value = await self._redis.get(self._name(key))
        return None if value is None else _read(value, self._name(key))

    async def put(self, key: DeliveryKey, new: Key, over: Key | None = None) -> Key | None:
        """Store a key if there is none, or over the one that was read; None when another is there."""
        value = json.dumps([int(new.state), new.holder, new.expires_at, new.end, new.why])
        until = -(-new.expires_at // 1000)
        if over is None:
            with _explained():
                put = await self._redis.set(self._name(key), value, nx=True, pxat=until)
        else:
            put = await self._change(key, over, value, until)
        return new._replace(etag=value) if put else None

    async def delete(self, key: DeliveryKey, found: Key) -> None:
        """Delete a key, unless it is another by now."""
        await self._change(key, found)

    async def unended(self) -> AsyncIterator[tuple[str, str]]:
        """Yield customer and message of each sealed key that says no end. Costs a request for each, and for each 10."""
        with _explained():
            async for name in self._redis.scan_iter(match=f"{self._prefix}:*"):
                value = await self._redis.get(name)
                found = None if value is None else _read(value, name)
                if found is not None and found.state is KeyState.SEALED and found.end is None:
                    customer, _, message = name.removeprefix(f"{self._prefix}:").rpartition(":")
                    yield customer, message

    async def weaknesses(self) -> list[str]:
        """Return sentences on what this Redis may forget, as far as it tells."""
        with _explained():
            said: dict[str, Any] = {
                **await self._redis.info("persistence"),
                **await self._redis.info("memory"),
            }
        found = []
        if not said.get("aof_enabled"):
            found.append(
                "This Redis keeps keys in memory (appendonly is off): when it dies, what it had sealed may be sent "
                "again, also at most once."
            )
        policy = said.get("maxmemory_policy", "noeviction")
        if said.get("maxmemory") and policy != "noeviction":
            found.append(
                f"This Redis drops keys when its memory is full (maxmemory-policy is {policy}): what they sealed may "
                f"be sent again. Set it to noeviction."
            )
        return found

    async def _change(self, key: DeliveryKey, found: Key, value: str | None = None, until: int = 0) -> bool:
        """Put a value over the one that was read, or delete that without one; False when another is there by now."""
        from redis.exceptions import WatchError  # noqa: PLC0415 - its extra

        name = self._name(key)
        with _explained():
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
        return f"{self._prefix}:{key.customer}:{id_text(key.message)}"


@asynccontextmanager
async def open_redis(url: str, prefix: str) -> AsyncIterator[RedisKeys]:
    """Connect to the Redis behind a url and give its keys. Raises `UsageError` when it does not answer, or refuses."""
    try:
        from redis.asyncio import Redis  # noqa: PLC0415 - its extra
        from redis.asyncio.retry import Retry  # noqa: PLC0415 - its extra
        from redis.backoff import NoBackoff  # noqa: PLC0415 - its extra
        from redis.exceptions import AuthenticationError, ConnectionError, TimeoutError  # noqa: A004, PLC0415 - its extra
    except ModuleNotFoundError as error:
        message = f"Keys in Redis need {error.name}: pip install 'consistent-messaging[publish]'."
        raise MissingExtraError(message) from error
    redis = Redis.from_url(
        url,
        decode_responses=True,
        socket_timeout=_SECONDS,
        socket_connect_timeout=_SECONDS,
        retry=Retry(NoBackoff(), 0),
    )
    async with redis:
        try:
            ping: Any = redis.ping()
            await ping
        except AuthenticationError as error:
            raise UsageError(f"Redis refuses the user or password of --keys: {error}") from error
        except (ConnectionError, TimeoutError) as error:
            at = redis.connection_pool.connection_kwargs
            place = at.get("path") or f"{at.get('host', 'localhost')}:{at.get('port', 6379)}"
            message = (
                f"No Redis answers at {place}: start one (redis-server --appendonly yes --appendfsync always), correct "
                f"--keys, or leave it out to keep the keys in the table."
            )
            raise UsageError(message) from error
        yield RedisKeys(redis, prefix)


@contextmanager
def _explained() -> Iterator[None]:
    """Raise `StoreUnavailableError` when a command may or may not have been done, `TargetError` when it was refused."""
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
