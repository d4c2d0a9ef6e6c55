"""Keys of deliveries in Redis: one key for each customer and message, which Redis drops when it expires.

Its value is text: the state, 0 for locked and 1 for sealed, who holds it, until when in microseconds, and once sealed,
as JSON, how that delivery ended. A value is written if nothing is there, or if what is there is still what was read:
each call is one command or one script, which Redis runs without any other in between. Of deliveries that hold no key,
Redis keeps no record.
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
from redis.exceptions import AuthenticationError, ConnectionError, RedisError, TimeoutError  # noqa: A004

from eventstore import StoreUnavailableError
from eventstore.backoff import Sleep
from runtime.algorithms.last_hop.keys import DeliveryKey, Key, KeyState, Record
from runtime.errors import DeliveryStoppedError, StoredDataError, UsageError
from runtime.messages.message_ids import id_text

_REPLACE = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2], 'PXAT', ARGV[3])
return 1
"""
_DELETE = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])
"""
_RECORD = """
local head, holder = string.match(redis.call('GET', KEYS[1]) or '', '^(1 (%S+) %d+)')
if holder ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], head .. ' ' .. ARGV[2], 'KEEPTTL')
return 1
"""
_SECONDS = 5.0
_MICROSECONDS_OF_A_MILLISECOND = 1000


class RedisKeys:
    """Keys in a Redis database, under names that begin with a prefix."""

    def __init__(self, redis: Redis, prefix: str) -> None:
        self._redis = redis
        self._prefix = prefix

    @property
    def sleep(self) -> Sleep:
        """How to wait: other deliveries go on."""
        return asyncio.sleep

    async def put(
        self, key: DeliveryKey, state: KeyState, holder: str, expires_at: int, over: Key | None = None
    ) -> Key | None:
        """Put a key there if it is absent, or over the one that was read; return None when another is there."""
        name, value = self._name(key), _value(state, holder, expires_at)
        if over is None:
            put = await _answer(self._redis.set(name, value, nx=True, pxat=_milliseconds(expires_at)))
        else:
            put = await self._replace(name, over.etag, value, expires_at)
        return Key(state, holder, expires_at, value) if put else None

    async def get(self, key: DeliveryKey) -> Key | None:
        """Read a key."""
        value = await _answer(self._redis.get(self._name(key)))
        if value is None:
            return None
        with self._reading(key):
            state, holder, expires_at = value.split(" ", 3)[:3]
            return Key(KeyState(int(state)), holder, int(expires_at), value)

    async def end(
        self, key: DeliveryKey, held: Key | None, sealed_until: int | None, record: Record, name: str
    ) -> bool:
        """Seal the held key with the end of its delivery, or unlock it; or add the end to the key that `name` sealed.

        False says that the key is held by another now, and nothing was done.
        """
        end = json.dumps(record)
        if held is None:
            await _answer(self._redis.eval(_RECORD, 1, self._name(key), name, end))
            return True
        if sealed_until is None:
            return bool(await _answer(self._redis.eval(_DELETE, 1, self._name(key), held.etag)))
        value = f"{_value(KeyState.SEALED, held.holder, sealed_until)} {end}"
        return await self._replace(self._name(key), held.etag, value, sealed_until)

    async def end_of(self, key: DeliveryKey, holder: str) -> Record | None:
        """Return how the delivery ended that sealed a key, None when it left no record."""
        value = await _answer(self._redis.get(self._name(key)))
        if value is None:
            return None
        with self._reading(key):
            _, found, _, *end = value.split(" ", 3)
            return Record(*json.loads(end[0])) if end and found == holder else None

    async def weaknesses(self) -> list[str]:
        """Return sentences on what this Redis may forget, as far as it tells."""
        said: dict[str, Any] = {}
        for section in ("persistence", "memory"):
            said.update(await _answer(self._redis.info(section)))
        return list(_weaknesses(said))

    async def _replace(self, name: str, old: str, new: str, expires_at: int) -> bool:
        return bool(await _answer(self._redis.eval(_REPLACE, 1, name, old, new, _milliseconds(expires_at))))

    def _name(self, key: DeliveryKey) -> str:
        return f"{self._prefix}:{key.customer}:{id_text(key.message)}"

    @contextmanager
    def _reading(self, key: DeliveryKey) -> Iterator[None]:
        try:
            yield
        except (ValueError, TypeError) as error:
            raise StoredDataError(
                f"The key of a delivery cannot be read: {error!r}.", self._name(key)
            ) from error


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
        await _check(redis)
        yield RedisKeys(redis, prefix)


def _weaknesses(said: dict[str, Any]) -> Iterator[str]:
    if not said.get("aof_enabled"):
        yield (
            "This Redis keeps keys in memory (appendonly is off): when it dies, what it had sealed may be sent again, "
            "also at most once."
        )
    policy = said.get("maxmemory_policy", "noeviction")
    if said.get("maxmemory") and policy != "noeviction":
        yield (
            f"This Redis drops keys when its memory is full (maxmemory-policy is {policy}): what they sealed may be "
            f"sent again. Set it to noeviction."
        )


async def _check(redis: Redis) -> None:
    ping: Any = redis.ping()
    try:
        await ping
    except AuthenticationError as error:
        raise UsageError(f"Redis refuses the user or password of --keys: {error}") from error
    except (ConnectionError, TimeoutError) as error:
        where = _place(redis)
        message = (
            f"No Redis answers at {where}: start one (redis-server --appendonly yes --appendfsync always), correct "
            f"--keys, or keep the keys in a table, --keys sqlite:///keys.db."
        )
        raise UsageError(message) from error


def _place(redis: Redis) -> str:
    given = redis.connection_pool.connection_kwargs
    return str(given.get("path") or f"{given.get('host', 'localhost')}:{given.get('port', 6379)}")


async def _answer(call: Any) -> Any:  # noqa: ANN401 - redis-py types its commands for both kinds of clients
    """Await a command. Raises `StoreUnavailableError` when it may or may not have been done."""
    try:
        return await call
    except (ConnectionError, TimeoutError) as error:
        raise StoreUnavailableError(f"Redis did not answer: {error}", outcome_unknown=True) from error
    except RedisError as error:
        raise DeliveryStoppedError(f"Redis refused a command: {error}. Nothing more is sent.") from error


def _value(state: KeyState, holder: str, expires_at: int) -> str:
    return f"{int(state)} {holder} {expires_at}"


def _milliseconds(microseconds: int) -> int:
    return -(-microseconds // _MICROSECONDS_OF_A_MILLISECOND)
