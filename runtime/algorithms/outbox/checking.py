"""Checking an entity: its row and its letters decode, and what the row counts is what there is."""

from __future__ import annotations

from dataclasses import replace

from eventstore import Row, Value
from runtime.algorithms.outbox.entities import ENTITY
from runtime.algorithms.outbox.entity import read_entity
from runtime.errors import StoredDataError
from runtime.storage import letters
from runtime.storage.checking.fault import Fault, Repair
from runtime.storage.checking.letters import LettersCheck


class EntityCheck:
    """Checks one entity, whose rows are added in the order of their keys, that of the entity first.

    State and outbox are told nowhere else; how many entries are unfinished, and what letters there are, is.
    """

    row_key = ENTITY
    """The key of the row that comes first."""

    def __init__(self, row: Row) -> None:
        self.key = row.partition_key
        self.faults: list[Fault] = []
        self.repair = Repair()
        self._row = row
        self._letters = LettersCheck()

    def add(self, row: Row) -> None:
        """Check a row beside that of the entity."""
        if not row.row_key.startswith(letters.PREFIX):
            return
        try:
            self._letters.add(row)
        except StoredDataError as error:
            self.faults.append(Fault(self.key, row.row_key, error.problem))

    def end(self) -> list[Fault]:
        """Check what all rows together tell, and return all faults."""
        stored = self._row.properties
        wrong, is_certain = self._letters.wrong(stored)
        if stored.get("LetterRows", 0) != self._letters.rows:
            wrong["LetterRows"] = self._letters.rows or None
        row: dict[str, Value | None] = {**stored, "Pending": 0, **wrong}
        mended = {name: value for name, value in row.items() if value is not None}
        try:
            pending = read_entity(replace(self._row, properties=mended)).pending
        except StoredDataError as error:
            self.faults.append(Fault(self.key, ENTITY, error.problem))
            return self.faults
        if stored.get("Pending") != pending or isinstance(stored.get("Pending"), bool):
            wrong["Pending"] = pending
        if wrong:
            text = f"counts otherwise than its rows: {', '.join(wrong)}"
            self.faults.append(Fault(self.key, ENTITY, text, is_certain))
            self.repair.rows[ENTITY] = {**mended, "Pending": pending}
        return self.faults
