"""A table on every backend: each call goes to all, must come to the same, and must agree with earlier ETags."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from reprlib import Repr
from typing import Any, Literal, NamedTuple, NoReturn, TypeVar

from eventstore import ANY_ETAG, EventStoreError, Operation, Page, Row, RowError, Table, Verb
from tests.differential.values import LAST, Wide, values_of

T = TypeVar("T")
Key = tuple[str, str]
Seen = dict[Any, Any]
Call = Callable[[int, Table], Coroutine[Any, Any, T]]
BACKENDS = ("memory", "SQLite", "Azurite", "PostgreSQL")
NEVER_GIVEN = 'W/"never given"'
MAX_OPERATIONS = 100
_OTHER_DIGITS = str.maketrans("0123456789", "٠١٢٣٤٥٦٧٨٩")
_SHOWN = Repr()
_SHOWN.maxlevel = 8
_SHOWN.maxdict = _SHOWN.maxlist = 30
_SHOWN.maxstring = _SHOWN.maxother = 200


CONDITIONAL = (Verb.REPLACE, Verb.MERGE, Verb.DELETE)


class Remembered(Enum):
    """An ETag that a program got from each backend before."""

    CURRENT = "the last one of the row, which may be deleted"
    STALE = "an older one of the row"
    FOREIGN = "one of another row"
    OTHER_DIGITS = "the last one with its digits in another script"


@dataclass(frozen=True, slots=True)
class Change:
    """An operation whose ETag is given, or one to be looked up for each backend."""

    verb: Verb
    row_key: str
    properties: Mapping[str, Any] | Wide = field(default_factory=dict)
    etag: Remembered | str | None = None


Changes = list[Change]


class DifferenceError(AssertionError):
    """Raised when the backends do not behave alike, or not as the port promises."""


class Handle(NamedTuple):
    """The ETags that one write of a row returned, one for each backend, and the number of its transaction."""

    etags: tuple[str, ...]
    transaction: int


@dataclass(frozen=True, slots=True)
class Reading:
    """A range to read page by page. Each backend has its own continuation."""

    method: Literal["query", "scan"]
    arguments: tuple[str | None, ...]
    select: list[str] | None = None
    continuations: tuple[str | None, ...] = (None,) * len(BACKENDS)


class ComparedTable:
    def __init__(self, tables: Sequence[Table], runner: asyncio.Runner) -> None:
        self.has_differed = False
        self._tables = tables
        self._runner = runner
        self._past: defaultdict[Key, list[Handle]] = defaultdict(list)
        self._rows: dict[Key, Handle] = {}
        self._transactions = 0

    def transact(self, partition_key: str, changes: Changes) -> None:
        etags = self._call(
            f"transact({partition_key!r}, {changes!r})",
            lambda backend, table: table.transact(
                partition_key, [self._operation(backend, partition_key, each) for each in changes]
            ),
            lambda found: {"has an ETag": [etag != "" for etag in found]},
        )
        self._transactions += bool(etags)
        for change, given in zip(changes, zip(*etags, strict=True), strict=True) if etags else ():
            key = (partition_key, change.row_key)
            if change.verb is Verb.DELETE:
                del self._rows[key]
                continue
            for backend, etag in enumerate(given):
                if any(handle.etags[backend] == etag for handle in self._past[key]):
                    self._differ(f"{BACKENDS[backend]} gave the row {key!r} the ETag {etag!r} a second time")
            self._rows[key] = Handle(given, self._transactions)
            self._past[key].append(self._rows[key])

    def fitted(self, partition_key: str, changes: Changes) -> Changes:
        """Return the changes so that they suit the rows that exist."""
        return [_fitted(change, (partition_key, change.row_key) in self._rows) for change in changes]

    def get(self, partition_key: str, row_key: str) -> None:
        found = self._call(
            f"get({partition_key!r}, {row_key!r})",
            lambda _, table: table.get(partition_key, row_key),
            lambda row: _seen_of_page(Page((row,) if row else ())),
        )
        for backend, row in enumerate(found):
            self._check_etags(backend, [row] if row else [])

    def read(self, reading: Reading) -> tuple[list[str], Reading | None]:
        """Read a page; return the keys of its rows, and the rest to read if there is more."""

        def page_of(backend: int, table: Table) -> Coroutine[Any, Any, Page]:
            call: Any = getattr(table, reading.method)
            page: Coroutine[Any, Any, Page] = call(
                *reading.arguments, select=reading.select, continuation=reading.continuations[backend]
            )
            return page

        name = f"{reading.method}{reading.arguments!r} with select={reading.select!r}"
        pages = self._call(name, page_of, _seen_of_page)
        for backend, page in enumerate(pages):
            self._check_etags(backend, page.rows)
        if not pages:
            return [], None
        keys = [row.row_key for row in pages[0].rows]
        if pages[0].continuation is None:
            return keys, None
        return keys, replace(reading, continuations=tuple([page.continuation for page in pages]))

    def end(self) -> None:
        """Compare all rows, then delete them: the memory of a service is limited."""
        for partition_key in sorted({partition_key for partition_key, _ in self._rows}):
            keys = self._whole(partition_key)
            for start in range(0, len(keys), MAX_OPERATIONS):
                some = keys[start : start + MAX_OPERATIONS]
                self.transact(
                    partition_key, [Change(Verb.DELETE, key, etag=Remembered.CURRENT) for key in some]
                )
            self._whole(partition_key)

    def _call(self, name: str, call: Call[T], seen: Callable[[T], Seen]) -> list[T]:
        """Return what the call returns on each backend, or nothing if all refuse it alike.

        `seen` returns the part of a result that must be the same. Raises `DifferenceError`.
        """
        outcomes = self._runner.run(self._outcomes(call))
        views = [_seen_of_error(o) if isinstance(o, Exception) else seen(o) for o in outcomes]
        if any(view != views[0] for view in views):
            self._differ(f"{name} came to\n{_differences(views)}")
        return [outcome for outcome in outcomes if not isinstance(outcome, Exception)]

    async def _outcomes(self, call: Call[T]) -> list[T | Exception]:
        outcomes: list[T | Exception] = []
        for backend, table in enumerate(self._tables):
            try:
                outcomes.append(await call(backend, table))
            except (EventStoreError, ValueError, TypeError) as error:
                outcomes.append(error)
        return outcomes

    def _differ(self, how: str) -> NoReturn:
        self.has_differed = True
        raise DifferenceError(how)

    def _operation(self, backend: int, partition_key: str, change: Change) -> Operation:
        etag = change.etag
        if isinstance(etag, Remembered):
            etag = self._etag(etag, (partition_key, change.row_key), backend)
        return Operation(change.verb, change.row_key, values_of(change.properties), etag)

    def _etag(self, wanted: Remembered, key: Key, backend: int) -> str:
        """Return the backend's ETag that is wanted, or one that no row had if there is none."""
        past = self._past[key]
        if wanted is Remembered.FOREIGN:
            # All rows that one transaction writes may get the same ETag, so the other row is of another one.
            mine = {handle.transaction for handle in past}
            found = [handle for handle in self._rows.values() if handle.transaction not in mine][-1:]
        else:
            found = past[-2:-1] if wanted is Remembered.STALE else past[-1:]
        etag = found[0].etags[backend] if found else NEVER_GIVEN
        return etag.translate(_OTHER_DIGITS) if found and wanted is Remembered.OTHER_DIGITS else etag

    def _check_etags(self, backend: int, rows: Sequence[Row]) -> None:
        """Check that each row is read with the ETag that its last write returned."""
        for row in rows:
            handle = self._rows.get((row.partition_key, row.row_key))
            written = handle.etags[backend] if handle else None
            if row.etag != written:
                self._differ(
                    f"{BACKENDS[backend]} reads the row {row.row_key!r} of {row.partition_key!r} "
                    f"with the ETag {row.etag!r}; its last write returned {written!r}"
                )

    def _whole(self, partition_key: str) -> list[str]:
        """Compare all rows of a partition with each other, and their keys with those that were written."""
        reading: Reading | None = Reading("query", (partition_key, "", LAST))
        row_keys: list[str] = []
        while reading is not None:
            page, reading = self.read(reading)
            row_keys += page
        written = {row_key for partition, row_key in self._rows if partition == partition_key}
        if len(row_keys) != len(written) or set(row_keys) != written:
            self._differ(f"{partition_key!r} has the rows {row_keys!r}; {written!r} were written")
        return row_keys


def _fitted(change: Change, is_there: bool) -> Change:
    if change.verb in CONDITIONAL:
        if is_there:
            return replace(change, etag=Remembered.CURRENT)
        return replace(change, verb=Verb.INSERT, etag=None)
    if change.verb is Verb.INSERT and is_there:
        return replace(change, verb=Verb.REPLACE, etag=ANY_ETAG)
    return change


def _seen_of_page(page: Page) -> Seen:
    """Return the rows of a page, the order of those with ASCII keys, and whether there are more.

    Values differ in type and in all that their text shows: the sign of a zero, a time's zone. ETags and continuations
    differ from backend to backend.
    """
    rows = {
        (row.partition_key, row.row_key): {
            name: (type(value).__name__, repr(value)) for name, value in row.properties.items()
        }
        for row in page.rows
    }
    ordered = [key for key in rows if "".join(key).isascii()]
    return {**rows, "order": ordered, "count": len(page.rows), "has more": page.continuation is not None}


def _seen_of_error(error: Exception) -> Seen:
    """Return the type with the row, or with the message if the error is not about one row."""
    facts = (error.row_key, error.index) if isinstance(error, RowError) else str(error)
    return {type(error).__name__: facts}


def _differences(views: Sequence[Seen]) -> str:
    """Return what each backend has and another one has not."""
    lines = []
    for name, view in zip(BACKENDS, views, strict=True):
        own = {key: value for key, value in view.items() if any(other.get(key) != value for other in views)}
        lines.append(f"  {name}: {_SHOWN.repr(own)}")
    return "\n".join(lines)
