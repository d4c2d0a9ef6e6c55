"""A table on every backend, and what a program knows of its rows."""

from collections import defaultdict
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from eventstore import ANY_ETAG, Operation, Page, Row, Table, Verb
from tests.differential.changes import CONDITIONAL, Change, Changes, Remembered
from tests.differential.properties import values_of
from tests.differential.side_by_side import BACKENDS, SideBySide, seen_of_etags, seen_of_page, seen_of_row
from tests.differential.values import LAST

Key = tuple[str, str]
NEVER_GIVEN = 'W/"never given"'
_OTHER_DIGITS = str.maketrans("0123456789", "٠١٢٣٤٥٦٧٨٩")


@dataclass(frozen=True, slots=True)
class Handle:
    """The ETags that one write of a row got, one of each backend."""

    etags: tuple[str, ...]
    transaction: int


class EtagBook:
    """All ETags of one program."""

    def __init__(self) -> None:
        self._past: defaultdict[Key, list[Handle]] = defaultdict(list)
        self._rows: dict[Key, Handle] = {}
        self._transactions = 0

    @property
    def rows(self) -> dict[Key, Handle]:
        """The rows that are there, each with the handle of its last write."""
        return self._rows

    def begin(self) -> None:
        """Begin a transaction."""
        self._transactions += 1

    def written(self, key: Key, etags: tuple[str, ...]) -> None:
        """Remember that the row was written by the transaction that has begun."""
        self._rows[key] = Handle(etags, self._transactions)
        self._past[key].append(self._rows[key])

    def deleted(self, key: Key) -> None:
        """Remember that the row is no longer there; its ETags still are known."""
        del self._rows[key]

    def was_given(self, key: Key, backend: int, etag: str) -> bool:
        """Tell whether the row had this ETag at any time, be it before it was made anew."""
        return any(handle.etags[backend] == etag for handle in self._past[key])

    def look_up(self, wanted: Remembered, key: Key, backend: int) -> str:
        """Return the backend's ETag that is wanted, or one that no row had if there is none."""
        handle = self._handle(wanted, key)
        if handle is None:
            return NEVER_GIVEN
        etag = handle.etags[backend]
        return etag.translate(_OTHER_DIGITS) if wanted is Remembered.OTHER_DIGITS else etag

    def _handle(self, wanted: Remembered, key: Key) -> Handle | None:
        past = self._past[key]
        if wanted is Remembered.FOREIGN:
            return self._foreign(key)
        if wanted is Remembered.STALE:
            return past[-2] if len(past) > 1 else None
        return past[-1] if past else None

    def _foreign(self, key: Key) -> Handle | None:
        # All rows that one transaction writes may get the same ETag, so the other row is of another one.
        mine = {handle.transaction for handle in self._past[key]}
        others = (handle for handle in reversed(self._rows.values()) if handle.transaction not in mine)
        return next(others, None)


MAX_OPERATIONS = 100


@dataclass(frozen=True, slots=True)
class Reading:
    """A range to read page by page; each backend has its own continuation."""

    method: Literal["query", "scan"]
    arguments: tuple[str | None, ...]
    select: list[str] | None = None
    continuations: tuple[str | None, ...] = (None,) * len(BACKENDS)

    def page_of(self, backend: int, table: Table) -> Coroutine[Any, Any, Page]:
        """Read the page that is next on this backend."""
        call: Any = getattr(table, self.method)
        page: Coroutine[Any, Any, Page] = call(
            *self.arguments, select=self.select, continuation=self.continuations[backend]
        )
        return page


class ComparedTable:
    """A table whose calls are compared, and checked against the ETags that were given before."""

    def __init__(self, sides: SideBySide) -> None:
        self.sides = sides
        self._book = EtagBook()

    def transact(self, partition_key: str, changes: Changes) -> None:
        """Carry out changes with the ETags that they ask for."""
        etags = self.sides.call(
            f"transact({partition_key!r}, {changes!r})",
            lambda backend, table: table.transact(
                partition_key, self._operations(backend, partition_key, changes)
            ),
            seen_of_etags,
        )
        if not etags:
            return
        self._book.begin()
        for change, given in zip(changes, zip(*etags, strict=True), strict=True):
            self._remember((partition_key, change.row_key), change.verb, given)

    def fitted(self, partition_key: str, changes: Changes) -> Changes:
        """Return the changes so that they suit the rows as they are."""
        return [_fitted(change, (partition_key, change.row_key) in self._book.rows) for change in changes]

    def get(self, partition_key: str, row_key: str) -> None:
        """Read one row."""
        found = self.sides.call(
            f"get({partition_key!r}, {row_key!r})",
            lambda _, table: table.get(partition_key, row_key),
            seen_of_row,
        )
        for backend, row in enumerate(found):
            self._check_etags(backend, [row] if row else [])

    def read(self, reading: Reading) -> tuple[list[str], Reading | None]:
        """Read a page; return the keys of its rows, and what to read next if there is more."""
        name = f"{reading.method}{reading.arguments!r} with select={reading.select!r}"
        pages = self.sides.call(name, reading.page_of, seen_of_page)
        for backend, page in enumerate(pages):
            self._check_etags(backend, page.rows)
        if not pages:
            return [], None
        keys = [row.row_key for row in pages[0].rows]
        if pages[0].continuation is None:
            return keys, None
        return keys, replace(reading, continuations=tuple([page.continuation for page in pages]))

    def end(self) -> None:
        """Compare all that is in the table, then delete it: the service has no more memory than others."""
        for partition_key in sorted({partition_key for partition_key, _ in self._book.rows}):
            self._delete(partition_key, self._whole(partition_key))
            self._whole(partition_key)

    def _operations(self, backend: int, partition_key: str, changes: Changes) -> list[Operation]:
        return [
            Operation(
                change.verb,
                change.row_key,
                values_of(change.properties),
                self._book.look_up(change.etag, (partition_key, change.row_key), backend)
                if isinstance(change.etag, Remembered)
                else change.etag,
            )
            for change in changes
        ]

    def _remember(self, key: tuple[str, str], verb: Verb, etags: tuple[str, ...]) -> None:
        if verb is Verb.DELETE:
            self._book.deleted(key)
            return
        for backend, etag in enumerate(etags):
            if self._book.was_given(key, backend, etag):
                self.sides.differ(f"{BACKENDS[backend]} gave the row {key!r} the ETag {etag!r} a second time")
        self._book.written(key, etags)

    def _check_etags(self, backend: int, rows: Sequence[Row]) -> None:
        """Check that each row is read with the ETag that its last write returned."""
        for row in rows:
            handle = self._book.rows.get((row.partition_key, row.row_key))
            written = handle.etags[backend] if handle else None
            if row.etag != written:
                self.sides.differ(
                    f"{BACKENDS[backend]} reads the row {row.row_key!r} of {row.partition_key!r} "
                    f"with the ETag {row.etag!r}; its last write returned {written!r}"
                )

    def _whole(self, partition_key: str) -> list[str]:
        """Compare all rows of a partition with each other, and their keys with what was written."""
        reading: Reading | None = Reading("query", (partition_key, "", LAST))
        row_keys: list[str] = []
        while reading is not None:
            page, reading = self.read(reading)
            row_keys += page
        written = {row_key for partition, row_key in self._book.rows if partition == partition_key}
        if len(row_keys) != len(written) or set(row_keys) != written:
            self.sides.differ(f"{partition_key!r} has the rows {row_keys!r}; {written!r} were written")
        return row_keys

    def _delete(self, partition_key: str, row_keys: Sequence[str]) -> None:
        for start in range(0, len(row_keys), MAX_OPERATIONS):
            some = row_keys[start : start + MAX_OPERATIONS]
            self.transact(
                partition_key, [Change(Verb.DELETE, row_key, etag=Remembered.CURRENT) for row_key in some]
            )


def _fitted(change: Change, is_there: bool) -> Change:
    if change.verb in CONDITIONAL:
        if is_there:
            return replace(change, etag=Remembered.CURRENT)
        return replace(change, verb=Verb.INSERT, etag=None)
    if change.verb is Verb.INSERT and is_there:
        return replace(change, verb=Verb.REPLACE, etag=ANY_ETAG)
    return change
