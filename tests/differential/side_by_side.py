"""One call of the port on every backend, and the comparison of what it comes to."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from reprlib import Repr
from typing import Any, NoReturn, TypeVar

from eventstore import EventStoreError, Page, Properties, Row, RowError, Table

Seen = dict[Any, Any]


def seen_of_page(page: Page) -> Seen:
    """Return the rows of a page, the order of those with ASCII keys, and whether there are more.

    Values are told apart by type and by all that their text shows: the sign of a zero, a time's zone. ETags
    and continuations differ from backend to backend.
    """
    rows = {(row.partition_key, row.row_key): _seen_of_properties(row.properties) for row in page.rows}
    ordered = [key for key in rows if "".join(key).isascii()]
    return {**rows, "order": ordered, "count": len(page.rows), "has more": page.continuation is not None}


def seen_of_row(row: Row | None) -> Seen:
    """Return the same of one row, if there is one."""
    return seen_of_page(Page((row,) if row else ()))


def seen_of_etags(etags: tuple[str, ...]) -> Seen:
    """Return for which operations a transaction gave ETags."""
    return {"has an ETag": [etag != "" for etag in etags]}


def seen_of_error(error: Exception) -> Seen:
    """Return the type with the row, or with the message when the error is not about one row."""
    facts = (error.row_key, error.index) if isinstance(error, RowError) else str(error)
    return {type(error).__name__: facts}


def _seen_of_properties(properties: Properties) -> Seen:
    return {name: (type(value).__name__, repr(value)) for name, value in properties.items()}


T = TypeVar("T")
Call = Callable[[int, Table], Coroutine[Any, Any, T]]
BACKENDS = ("memory", "SQLite", "Azurite", "PostgreSQL")

_SHOWN = Repr()
_SHOWN.maxlevel = 8
_SHOWN.maxdict = _SHOWN.maxlist = 30
_SHOWN.maxstring = _SHOWN.maxother = 200


class DifferenceError(AssertionError):
    """Raised when the backends do not behave alike, or not as the port promises."""


@dataclass(slots=True)
class Tally:
    """What was compared in a test session."""

    programs: int = 0
    calls: int = 0
    refused: int = 0


class SideBySide:
    """The same table on every backend; each call goes to all and must come to the same."""

    def __init__(self, tables: Sequence[Table], runner: asyncio.Runner, tally: Tally) -> None:
        self.has_differed = False
        self._tables = tables
        self._runner = runner
        self._tally = tally
        self._is_new = True

    def call(self, name: str, call: Call[T], seen: Callable[[T], Seen]) -> list[T]:
        """Return what the call returns on each backend, nothing when all refuse it alike.

        `seen` gives what must be the same of a result. Raises `DifferenceError`.
        """
        outcomes = self._runner.run(self._outcomes(call))
        views = [seen_of_error(o) if isinstance(o, Exception) else seen(o) for o in outcomes]
        if any(view != views[0] for view in views):
            self.differ(f"{name} came to\n{_differences(views)}")
        results = [outcome for outcome in outcomes if not isinstance(outcome, Exception)]
        self._count(is_refused=not results)
        return results

    def differ(self, how: str) -> NoReturn:
        """Raise the difference, and remember that there was one."""
        self.has_differed = True
        raise DifferenceError(how)

    async def _outcomes(self, call: Call[T]) -> list[T | Exception]:
        return [await _outcome(call(backend, table)) for backend, table in enumerate(self._tables)]

    def _count(self, *, is_refused: bool) -> None:
        self._tally.programs += self._is_new
        self._tally.calls += 1
        self._tally.refused += is_refused
        self._is_new = False


async def _outcome(call: Coroutine[Any, Any, T]) -> T | Exception:
    try:
        return await call
    except (EventStoreError, ValueError, TypeError) as error:
        return error


def _differences(views: Sequence[Seen]) -> str:
    """Return what each backend has that not all have."""
    lines = []
    for name, view in zip(BACKENDS, views, strict=True):
        own = {key: value for key, value in view.items() if any(other.get(key) != value for other in views)}
        lines.append(f"  {name}: {_SHOWN.repr(own)}")
    return "\n".join(lines)
