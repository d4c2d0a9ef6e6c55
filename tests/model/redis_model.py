"""Redis as keys of deliveries use it: three commands on texts that expire, and the scripts as they are shipped.

Each command is one step, and a script too: Redis runs its commands with no other in between. The time is given with
each, in milliseconds, and what has expired by then is not there, whether Redis has dropped it or not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from eventstore import Row
from tests.model.calls import REDIS, Call, ask
from tests.model.lua import compiled

CHANGED = "what was changed last"
"""A row beside those of Redis: the value that a script found when it changed a key, and the one it was told to find."""
_MICROSECONDS = 1000


class Entry(NamedTuple):
    """A text, and when it expires, in milliseconds since 1970."""

    value: str
    expires_at: int | None = None


class RedisModel:
    """A database of Redis."""

    def __init__(self, entries: Mapping[str, Entry] | None = None) -> None:
        self.entries = dict(entries or {})

    def command(self, now: int, name: str, *words: Any) -> Any:
        """Run a command at a time; return what redis-py makes of the reply."""
        gone = [key for key, entry in self.entries.items() if (entry.expires_at or now) < now]
        for key in gone:
            del self.entries[key]
        commands: dict[str, Callable[..., Any]] = {
            "get": self._get, "set": self._set, "del": self._delete, "eval": self._eval
        }  # fmt: skip
        return commands[name.lower()](now, *map(str, words))

    def _get(self, _: int, key: str) -> str | None:
        entry = self.entries.get(key)
        return None if entry is None else entry.value

    def _set(self, now: int, key: str, value: str, *options: str) -> bool | None:
        before = self.entries.get(key)
        if "NX" in options and before is not None:
            return None
        until = int(options[options.index("PXAT") + 1]) if "PXAT" in options else None
        if "KEEPTTL" in options and before is not None:
            until = before.expires_at
        self.entries[key] = Entry(value, until)
        if until is not None and until <= now:
            del self.entries[key]
        return True

    def _delete(self, _: int, key: str) -> int:
        return int(self.entries.pop(key, None) is not None)

    def _eval(self, now: int, script: str, count: str, *words: str) -> Any:
        def call(name: str, *given: Any) -> Any:
            found = self.command(now, name, *given)
            return False if found is None else found

        keys, arguments = words[: int(count)], words[int(count) :]
        names = {"KEYS": _table(keys), "ARGV": _table(arguments), "redis": {"call": call}}
        returned = compiled(script)(names)
        if isinstance(returned, bool):
            return 1 if returned else None
        return returned


class SteppedRedis:
    """A client each of whose commands suspends. It has the methods of redis-py's that keys use.

    The clock of Redis is the caller's, or with none stands still, so that nothing expires there.
    """

    def __init__(self, clock: Callable[[], int] | None) -> None:
        self._clock = clock

    async def get(self, key: str) -> str | None:
        """Read a text."""
        found: str | None = await ask(REDIS, "get", self._now(), key)
        return found

    async def set(self, key: str, value: str, *, nx: bool = False, pxat: int | None = None) -> bool | None:
        """Write a text."""
        options = [*(["NX"] if nx else []), *(["PXAT", pxat] if pxat is not None else [])]
        done: bool | None = await ask(REDIS, "set", self._now(), key, value, *options)
        return done

    async def eval(self, script: str, count: int, *words: Any) -> Any:
        """Run a script."""
        return await ask(REDIS, "eval", self._now(), script, count, *words)

    def _now(self) -> int:
        return 0 if self._clock is None else self._clock() // _MICROSECONDS


def performed(rows: Mapping[str, Row], call: Call) -> tuple[Mapping[str, Row], Any]:
    """Carry out a call on the rows that stand for a database; return those after it, and the reply."""
    redis = RedisModel({key: _entry(row) for key, row in rows.items() if key != CHANGED})
    now, *words = call.arguments
    before = dict(redis.entries)
    reply = redis.command(now, call.name, *words)
    after = {
        key: _row(key, Value=entry.value, ExpiresAt=entry.expires_at) for key, entry in redis.entries.items()
    }
    if call.name == "eval":
        _, _, key, told, *_ = words
        found = before.get(key)
        if found is not None and found != redis.entries.get(key):
            return {**after, CHANGED: _row(CHANGED, Found=found.value, Told=told)}, reply
    if CHANGED in rows:
        after[CHANGED] = rows[CHANGED]
    return after, reply


def _entry(row: Row) -> Entry:
    return Entry(str(row.properties["Value"]), row.properties.get("ExpiresAt"))  # type: ignore[arg-type]


def _row(key: str, **properties: Any) -> Row:
    return Row(REDIS, key, "", properties)


def _table(words: tuple[str, ...]) -> dict[int, str]:
    """Return a list as Lua has it, counted from 1."""
    return dict(enumerate(words, 1))
