"""Workers that die, answers that are lost, and calls between which another comes: for the tests of the runtime."""

from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any

from eventstore import InterceptedTable, StoreUnavailableError, Table


class CrashError(BaseException):
    """A worker died: nothing may catch this."""


def crash(*_: object) -> None:
    raise CrashError


def lose_answer(*_: object) -> None:
    raise StoreUnavailableError("no answer", outcome_unknown=True)


class At:
    """Does something at call number `number`, counted from 1, and at that one only."""

    def __init__(self, number: int, action: Callable[[], Awaitable[Any] | None]) -> None:
        self.number = number
        self.action = action
        self.count = 0

    def __call__(self, *_: object) -> Awaitable[Any] | None:
        self.count += 1
        return self.action() if self.count == self.number else None


def disturbed(table, action, call="transact", numbers=(1,), *, after=False) -> InterceptedTable:
    """Return the table, where something is done before, or after, the calls of a name that have these numbers."""

    def disturb(name: str, *_: object) -> Any:
        return action() if name == call and watched.counts[name] in numbers else None

    watched = InterceptedTable(table, after=disturb) if after else InterceptedTable(table, before=disturb)
    return watched


def disturbed_once(table: Table, at: At) -> InterceptedTable:
    """Return the table, where something is done once, before or after one of its calls."""
    return InterceptedTable(table, before=at, after=at)


class Pause:
    """Lets a worker stop in the middle, to be run on by `resume`."""

    def __await__(self) -> Generator[None, None, None]:
        yield


async def pause(*_: object) -> None:
    await Pause()


def resume(worker: Coroutine[Any, Any, Any]) -> bool:
    """Run a worker up to its next pause; say whether there was one, False when it has ended."""
    try:
        worker.send(None)
    except StopIteration:
        return False
    return True
