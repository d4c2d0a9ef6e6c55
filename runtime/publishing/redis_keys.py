"""Keys of the last hop in Redis: one for each customer and message, which Redis drops when it expires.

Its value is JSON: the state, 0 for locked and 1 for sealed, who holds it, until when in microseconds, and once sealed,
how that delivery ended and why. A value is written if nothing is there (`SET NX`), or if what is there is still what
was read (`WATCH`, `MULTI`).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import (
    AuthenticationError,
    ConnectionError,  # noqa: A004
    RedisError,
    TimeoutError,  # noqa: A004
    WatchError,
)

from eventstore import StoreUnavailableError
from eventstore.backoff import Sleep
from runtime.errors import StoredDataError, TargetError, UsageError
from runtime.messages.message_ids import id_text
from runtime.publishing.keys import DeliveryKey, Key, KeyState

_SECONDS = 5.0


class RedisKeys:
    """Keys in a Redis database, under names that begin with a prefix."""

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
