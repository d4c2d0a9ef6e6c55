"""One partition checked: what object it is of, what its rows tell together, and each row that stands for itself."""

from __future__ import annotations

from typing import Protocol

from eventstore import Row
from eventstore.header import is_header, is_tombstone
from eventstore.partition import EVENT, HEADER
from runtime.algorithms.outbox.checking import EntityCheck
from runtime.algorithms.outbox.entities import ENTITY
from runtime.batches.checking import LedgerCheck
from runtime.batches.numbering import PARTITION as LEDGER
from runtime.cleanup.kept_rows import check_row, is_beside
from runtime.documents.registrations import MARKER, PREFIX
from runtime.errors import StoredDataError
from runtime.publishing.checking import PublishingCheck
from runtime.publishing.records import PARTITION as PUBLISHING
from runtime.storage import id_index, letters
from runtime.storage.checking.fault import Fault, Repair
from runtime.storage.checking.stream import StreamCheck
from runtime.storage.head import is_of_state

_OF_STREAMS = (id_index.PREFIX, letters.PREFIX)
"""How the keys of rows begin that only streams of states and entities have."""


class Check(Protocol):
    """What compares the rows of one object, which are added in the order of their keys.

    Who writes the object writes its row `guard` too, if it has one.
    """

    repair: Repair
    guard: Row | None

    def add(self, row: Row) -> None:
        """Take a row."""

    def end(self) -> list[Fault]:
        """Compare the rows, and return all faults."""


class PartitionCheck:
    """Takes the rows of one partition in the order of their keys."""

    def __init__(self, key: str) -> None:
        self.key = key
        self._faults: list[Fault] = []
        self._check: Check | None = _of_partition(key)
        self._alone = Repair()
        self._is_of_another = False
        self._is_marked = False

    @property
    def guard(self) -> Row | None:
        """The row that whoever writes the object of the partition writes too, None when there is none."""
        return self._check.guard if self._check else None

    @property
    def is_shared(self) -> bool:
        """Whether some write to the object beside its guard: two readings may then be of two moments."""
        return isinstance(self._check, LedgerCheck)

    @property
    def repair(self) -> Repair:
        """What mends the faults that can be, all that was read taken into account."""
        changes = {**self._alone.rows, **(self._check.repair.rows if self._check else {})}
        return Repair(changes)

    @property
    def is_stream(self) -> bool:
        """Whether it is that of a stream of states."""
        return isinstance(self._check, StreamCheck)

    def add(self, row: Row) -> None:
        """Take a row."""
        if self._check is None:
            self._check = _begun(row)
            if self._check is not None:
                return
        if self._check is not None and not is_beside(row.row_key):
            self._check.add(row)
            return
        try:
            check_row(row)
        except StoredDataError as error:
            self._tell(row.row_key, error.problem)
        self._look_around(row)

    def end(self) -> list[Fault]:
        """Return all faults."""
        return self._faults if self._check is None else [*self._faults, *self._check.end()]

    def _look_around(self, row: Row) -> None:
        """Tell a row that belongs to others which are not there."""
        if "-" not in self.key:
            return
        self._is_of_another = self._is_of_another or (row.row_key == HEADER and _is_of_another(row))
        self._is_marked = self._is_marked or row.row_key == MARKER
        if row.row_key == HEADER and not self._is_of_another:
            self._tell(HEADER, "is no header of a stream")
        elif row.row_key.startswith(PREFIX) and not self._is_marked:
            self._is_marked = True
            self._tell(MARKER, "is gone: a sweep does not find the documents of the object", repair=True)
            self._alone.rows[MARKER] = {}
        elif row.row_key.startswith(_OF_STREAMS) or (
            row.row_key.startswith(EVENT) and not self._is_of_another
        ):
            self._tell(row.row_key, "belongs to a stream that has no header")
        elif row.row_key.startswith((ENTITY, MARKER)) and not is_beside(row.row_key):
            self._tell(row.row_key, "is named like a row of an object, and is none")

    def _tell(self, row_key: str, problem: str, *, repair: bool = False) -> None:
        self._faults.append(Fault(self.key, row_key, problem, repair))


def _of_partition(key: str) -> Check | None:
    """Return the check of a partition that has all of one kind, None for any other."""
    if key == LEDGER:
        return LedgerCheck()
    return PublishingCheck() if key == PUBLISHING else None


def _begun(row: Row) -> Check | None:
    """Return the check of the object whose first row this is, None for any other row."""
    if row.row_key == HEADER and is_of_state(row.properties):
        return StreamCheck(row)
    return EntityCheck(row) if row.row_key == ENTITY else None


def _is_of_another(header: Row) -> bool:
    """Say whether a header is that of a stream of somebody else's events, or of one that was deleted."""
    return is_header(header) or is_tombstone(header)
