"""The rows of publications compared: each slice, and each record of an output, belongs to a publication."""

from __future__ import annotations

from eventstore import Row
from runtime.errors import StoredDataError
from runtime.publishing.records import (
    PARTITION,
    PUBLICATION,
    RECORD,
    SLICE,
    number_of_slice,
    read_publication,
    read_record,
    read_slice,
)
from runtime.storage.checking.fault import Fault, Repair


class PublishingCheck:
    """Takes the rows of all publications. They are told nowhere else: what is damaged of them stays so."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []
        self.repair = Repair()
        self.guard: Row | None = None
        self._slices: dict[str, int] = {}
        self._unreadable: set[str] = set()
        self._parts: list[tuple[str, str, int]] = []

    def add(self, row: Row) -> None:
        """Take a row."""
        try:
            self._add(row)
        except StoredDataError as error:
            self._unreadable.add(row.row_key.partition(":")[2])
            self._tell(row.row_key, error.problem)

    def _add(self, row: Row) -> None:
        kind, key = row.row_key[:2], row.row_key[2:]
        if kind == PUBLICATION:
            self._slices[key] = read_publication(row).slices
        elif kind == SLICE:
            read_slice(row)
            self._parts.append((row.row_key, key.rpartition(":")[0], number_of_slice(row)))
        elif kind == RECORD:
            read_record(row)
            self._parts.append((row.row_key, key.partition(":")[0], 0))
        else:
            self._tell(row.row_key, "is no row of a publication")

    def end(self) -> list[Fault]:
        """Compare the rows, and return all faults."""
        for row_key, key, number in self._parts:
            slices = self._slices.get(key)
            if slices is None and key not in self._unreadable:
                self._tell(row_key, f"belongs to a publication that is not there, {key!r}")
            elif slices is not None and number >= slices:
                self._tell(row_key, f"is a slice of a publication that has {slices}")
        return self.faults

    def _tell(self, row_key: str, problem: str) -> None:
        self.faults.append(Fault(PARTITION, row_key, problem))
