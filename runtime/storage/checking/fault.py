"""Faults: what is wrong with rows, and the changes that mend them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from eventstore import Operation, Value
from eventstore.port import ANY_ETAG


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with a row. `repair` says that it can be made anew from others."""

    stream: str
    row: str
    problem: str
    repair: bool = False


@dataclass(slots=True)
class Repair:
    """What mends the faults of a partition that can be: other properties of rows, None for a row that goes."""

    rows: dict[str, Mapping[str, Value] | None] = field(default_factory=dict)

    def operations(self) -> list[Operation]:
        """Return the changes, those first that write: what goes may take several transactions."""
        written = [Operation.insert_or_replace(key, row) for key, row in self.rows.items() if row is not None]
        gone = [Operation.delete(key, ANY_ETAG) for key, row in self.rows.items() if row is None]
        return written + gone
