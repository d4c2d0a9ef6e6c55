"""What a program remembers of ETags: for each write of a row one ETag of each backend."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from tests.differential.changes import Remembered

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
