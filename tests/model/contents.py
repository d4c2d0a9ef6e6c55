"""Contents: all that the tables have held, each state of them under a number, and what calls do to it.

A call is carried out by the shipped table in memory, on a copy; the same call on the same contents once only.
"""

from collections.abc import Hashable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from itertools import count
from threading import RLock
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypeVar

from eventstore import Row, drive
from eventstore.backends.memory import MemoryPartition, MemoryTable
from eventstore.errors import EventStoreError
from tests.model.calls import REDIS, Call
from tests.model.processes import IncomparableTime
from tests.model.redis_model import performed

T = TypeVar("T")


def frozen(value: Any) -> Hashable:
    """Return a hashable key of a value. 1, True and 1.0 have different ones."""
    if value is None or isinstance(value, str | bytes | Enum):
        return value
    if isinstance(value, IncomparableTime):
        value = int(value)
    kind = type(value).__name__
    if isinstance(value, Mapping):
        return kind, tuple(sorted((name, frozen(each)) for name, each in value.items()))
    if isinstance(value, list | tuple):
        return kind, tuple([frozen(each) for each in value])
    if isinstance(value, AbstractSet):
        return kind, frozenset(frozen(each) for each in value)
    if isinstance(value, BaseException):
        return kind, frozen(value.args)
    if is_dataclass(value):
        return kind, tuple([frozen(getattr(value, field.name)) for field in fields(value)])
    if isinstance(value, Hashable):
        return kind, value
    message = f"There is no key for a {kind}: {value!r}"
    raise TypeError(message)


class Numbered(Generic[T]):
    """Gives equal values the same number, counted from 0, and keeps the first of them."""

    def __init__(self) -> None:
        self.values: list[T] = []
        self._numbers: dict[Hashable, int] = {}

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, number: int) -> T:
        return self.values[number]

    def key(self, value: T) -> Hashable:
        return frozen(value)

    def number(self, value: T) -> int:
        number = self._numbers.setdefault(self.key(value), len(self.values))
        if number == len(self.values):
            self.values.append(value)
        return number


Rows = Mapping[str, Row]
Partitions = Mapping[str, Rows]

_LOCK = RLock()


class _ETag(int):
    """A number of a write, that is known for one wherever it stands."""

    def __str__(self) -> str:
        return f"e-tag {int(self)}"


class Answer(NamedTuple):
    value: Any = None
    error: Exception | None = None


class Snapshot(NamedTuple):
    """What all tables hold at one time, by name, and how many rows were written until then.

    ETags are these counts, so they never repeat, and are alike whenever the same writes came in another order.
    """

    tables: Mapping[str, Partitions] = MappingProxyType({})
    writes: int = 0

    def table(self, name: str) -> MemoryTable:
        table = MemoryTable(map(_ETag, count(self.writes + 1)), _LOCK)
        for key, rows in self.tables.get(name, {}).items():
            partition = table._partitions[key] = MemoryPartition()
            partition.rows = dict(rows)
        return table


class _Snapshots(Numbered[Snapshot]):
    """Snapshots, which have most rows in common: each row is made into a key once."""

    def __init__(self) -> None:
        super().__init__()
        self._rows: Numbered[Row] = Numbered()
        self._known: dict[int, tuple[Row, int]] = {}

    def key(self, value: Snapshot) -> Hashable:
        rows = [
            (name, key, row_key, self._row(row))
            for name, partitions in value.tables.items()
            for key, partition in partitions.items()
            for row_key, row in partition.items()
        ]
        return value.writes, tuple(sorted(rows))

    def _row(self, row: Row) -> int:
        """Return the number of a row. It is kept, so that no other one has its identity."""
        known = self._known.get(id(row))
        if known is None:
            known = self._known[id(row)] = row, self._rows.number(row)
        return known[1]


class Contents:
    """Numbers snapshots, calls and answers, and remembers which call makes which snapshot of which."""

    def __init__(self) -> None:
        self.snapshots = _Snapshots()
        self.calls: Numbered[Call] = Numbered()
        self.answers: Numbered[Answer] = Numbered()
        self.perform = cache(self._perform)

    def _perform(self, snapshot: int, call: int) -> tuple[int, int]:
        """Carry out a call of a table; return the numbers of the snapshot after it and of the answer."""
        after, answer = perform(self.snapshots[snapshot], self.calls[call])
        return self.snapshots.number(after), self.answers.number(answer)


def perform(before: Snapshot, call: Call) -> tuple[Snapshot, Answer]:
    if call.target == REDIS:
        # A table with one partition. What has expired goes when something is written.
        rows, reply = performed(before.tables.get(REDIS, {}).get(REDIS, {}), call)
        tables = {**before.tables, REDIS: {REDIS: rows}} if call.changes else before.tables
        return before._replace(tables=tables), Answer(reply)
    table = before.table(call.target)
    try:
        answer = Answer(drive(_called(table, call)))
    except EventStoreError as error:
        return before, Answer(error=error)
    if not call.changes:
        return before, answer
    partitions = {key: partition.rows for key, partition in table._partitions.items()}
    writes = before.writes + len(call.arguments[1])
    return Snapshot({**before.tables, call.target: partitions}, writes), answer


async def _called(table: MemoryTable, call: Call) -> Any:
    if call.name == "query":
        key, first, last, select, continuation = call.arguments
        return await table.query(key, first, last, select=select, continuation=continuation)
    if call.name == "scan":
        row_key, first, last, select, continuation = call.arguments
        return await table.scan(row_key, first, last, select=select, continuation=continuation)
    return await getattr(table, call.name)(*call.arguments)
