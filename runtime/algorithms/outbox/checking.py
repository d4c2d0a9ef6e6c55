"""Checking an entity: its row and its letters decode, and what the row counts is what there is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from eventstore import Row, Value
from runtime.algorithms.outbox.entities import ENTITY
from runtime.algorithms.outbox.entity import Entity, read_entity
from runtime.errors import StoredDataError
from runtime.storage import letters
from runtime.storage.checking.fault import Fault, Repair
from runtime.storage.checking.letters import LettersCheck
from runtime.storage.damage import shown

_ALGORITHMS = ("outbox", "deduplication-store", "tokens")


class EntityCheck:
    """Checks one entity, whose rows are added in the order of their keys, that of the entity first.

    State and outbox are told nowhere else; how many entries are unfinished, and what letters there are, is. Where fewer
    are unfinished than counted, some may be lost.
    """

    def __init__(self, row: Row) -> None:
        self.key = row.partition_key
        self.faults: list[Fault] = []
        self.repair = Repair()
        self.guard: Row | None = row
        self._row = row
        self._letters = LettersCheck()

    def add(self, row: Row) -> None:
        """Check a row beside that of the entity."""
        if not row.row_key.startswith(letters.PREFIX):
            self.faults.append(Fault(self.key, row.row_key, "is no row of an entity"))
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
            entity = read_entity(replace(self._row, properties=mended))
        except StoredDataError as error:
            self.faults.append(Fault(self.key, ENTITY, error.problem))
            return self.faults
        self.faults += [Fault(self.key, ENTITY, problem) for problem in _contradictions(entity)]
        pending = entity.pending
        counted = stored.get("Pending")
        if counted != pending or isinstance(counted, bool):
            wrong["Pending"] = pending
            is_certain = is_certain and not (isinstance(counted, int) and counted > pending)
        if wrong:
            text = f"counts otherwise than its rows: {', '.join(wrong)}"
            self.faults.append(Fault(self.key, ENTITY, text, is_certain))
            self.repair.rows[ENTITY] = {**mended, "Pending": pending}
        return self.faults


def _contradictions(entity: Entity) -> Iterator[str]:
    """Give what the entries of an entity do not agree with."""
    if entity.algorithm not in _ALGORITHMS:
        yield f"is written by an algorithm that is none, {shown(entity.algorithm)}"
    if entity.schema < 1:
        yield f"has the schema version {entity.schema}"
    entries = sorted(entity.outbox.values(), key=lambda entry: entry.version)
    if not entries:
        return
    newest = entries[-1]
    if newest.version > entity.version:
        yield f"counts {entity.version} versions, and an entry is of version {newest.version}"
    elif newest.version == entity.version and newest.now != entity.last_now:
        yield f"was written last at another time than its version {newest.version}"
    if len({entry.version for entry in entries}) < len(entries) or entries[0].version < 1:
        yield "has entries whose versions cannot be those of one object"
