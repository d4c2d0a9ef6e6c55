"""Redis as keys of deliveries use it: texts that expire, and a transaction that is bound to a key that was watched.

Each command is one step: Redis runs its commands with no other in between. The time is given with each, in
milliseconds, and what has expired by then is not there, whether Redis has dropped it or not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Self

from redis.exceptions import WatchError

from eventstore import Row
from tests.model.calls import REDIS, Call, ask

CHANGED = "what was changed last"
"""A row beside those of Redis: the value that a transaction found when it changed a key, and the one it was told."""
_MICROSECONDS = 1000


class Entry(NamedTuple):
    """A text, and when it expires, in milliseconds since 1970."""

    value: str
    expires_at: int | None = None


class RedisModel:
    def __init__(self, entries: Mapping[str, Entry] | None = None) -> None:
        self.entries = dict(entries or {})

    def get(self, now: int, key: str) -> str | None:
        """Read a text; so does `WATCH`, which remembers it."""
        entry = self.entries.get(key)
        if entry is not None and (entry.expires_at or now) < now:
            del self.entries[key]
            return None
        return None if entry is None else entry.value

    def set(self, now: int, key: str, value: str | None, until: int, *, is_new: bool = False) -> bool:
        """Write a text, or delete it; False when it is to be new and is not."""
        if is_new and self.get(now, key) is not None:
            return False
        self.entries.pop(key, None)
        if value is not None and until > now:
            self.entries[key] = Entry(value, until)
        return True

    def execute(self, now: int, key: str, watched: str | None, value: str | None, until: int) -> bool:
        """Write a text, or delete it, unless the key has changed since it was watched."""
        return self.get(now, key) == watched and self.set(now, key, value, until)


class SteppedRedis:
    """A client each of whose commands suspends. It has the methods of redis-py's that keys use.

    The clock of Redis is the caller's, or with none stands still, so that nothing expires there.
    """

    told = ""
    """What the caller takes the key for that it changes."""

    def __init__(self, clock: Callable[[], int] | None) -> None:
        self._clock = clock

    async def get(self, key: str) -> str | None:
        found: str | None = await ask(REDIS, "get", self.now(), key)
        return found

    async def set(self, key: str, value: str, *, pxat: int, nx: bool = False) -> bool | None:
        done: bool = await ask(REDIS, "set", self.now(), key, value, pxat, nx, self.told)
        return done or None

    def pipeline(self) -> SteppedPipeline:
        return SteppedPipeline(self)

    def now(self) -> int:
        return 0 if self._clock is None else self._clock() // _MICROSECONDS


class SteppedPipeline:
    """A connection that watches one key, and changes it in one command."""

    def __init__(self, redis: SteppedRedis) -> None:
        self._redis = redis
        self._key, self._watched = "", None
        self._change: tuple[str | None, int] = (None, 0)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Give the connection back."""

    async def watch(self, key: str) -> None:
        self._key, self._watched = key, await ask(REDIS, "get", self._redis.now(), key)

    async def get(self, key: str) -> str | None:
        return await self._redis.get(key)

    def multi(self) -> None:
        """Begin the transaction."""

    def set(self, _: str, value: str, *, pxat: int) -> None:
        self._change = (value, pxat)

    def delete(self, _: str) -> None:
        self._change = (None, 0)

    async def execute(self) -> None:
        """Run the transaction. Raises `WatchError` when the key has changed."""
        redis, (value, until) = self._redis, self._change
        if not await ask(REDIS, "execute", redis.now(), self._key, self._watched, value, until, redis.told):
            raise WatchError


def performed(rows: Mapping[str, Row], call: Call) -> tuple[Mapping[str, Row], Any]:
    """Carry out a call on the rows that stand for a database; return those after it, and the reply."""
    entries = {key: Entry(*row.properties.values()) for key, row in rows.items() if key != CHANGED}  # type: ignore[arg-type]
    redis = RedisModel(entries)
    now, key, *words = call.arguments
    before = redis.get(now, key)
    if call.name == "get":
        return rows, before
    if call.name == "set":
        value, until, is_new, told = words
        done = redis.set(now, key, value, until, is_new=is_new)
    else:
        watched, value, until, told = words
        done = redis.execute(now, key, watched, value, until)
    after = {
        name: _row(name, Value=each.value, ExpiresAt=each.expires_at) for name, each in redis.entries.items()
    }
    if done and before is not None:
        after[CHANGED] = _row(CHANGED, Found=before, Told=told)
    elif CHANGED in rows:
        after[CHANGED] = rows[CHANGED]
    return after, done


def _row(key: str, **properties: Any) -> Row:
    return Row(REDIS, key, "", properties)
