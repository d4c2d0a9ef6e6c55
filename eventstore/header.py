"""The values of a stream: its properties, events, included rows, partition and header row."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING, NoReturn, Self, TypeGuard, TypeVar
from uuid import UUID

from eventstore.errors import DamagedRowError
from eventstore.limits import CONDITIONAL, check_types
from eventstore.port import ANY_ETAG, Operation, Properties, Row, Table, Value, Verb

VERSION = "Version"
FIRST_VERSION = "FirstVersion"
TOMBSTONE = "Tombstone"

RESERVED_NAMES = frozenset({"PartitionKey", "RowKey", "Timestamp", "ETag", "odata.etag", VERSION})
"""Names that no property of an event or stream can have."""

RESERVED_HEADER_NAMES = RESERVED_NAMES | {FIRST_VERSION, TOMBSTONE}
"""Names that no property of a stream can have."""


class FrozenProperties(dict[str, Value]):
    """An immutable, hashable dict. Pickling, copying and JSON treat it as a dict."""

    __slots__ = ()

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    def __reduce__(self) -> tuple[Callable[..., FrozenProperties], tuple[dict[str, Value]]]:
        return FrozenProperties, (dict(self),)

    def _refuse(self, *_args: object, **_named: object) -> NoReturn:
        raise TypeError("Properties are immutable: create new ones, {**properties, ...}.")

    if not TYPE_CHECKING:
        __setitem__ = __delitem__ = __ior__ = _refuse
        clear = pop = popitem = setdefault = update = _refuse


NO_PROPERTIES = FrozenProperties()


def frozen_copy(properties: Mapping[str, Value], names: frozenset[str] | None) -> FrozenProperties:
    """Return the named properties of an event's row. If `names` is None, return all except the event's version."""
    if names is not None:
        return FrozenProperties({name: value for name, value in properties.items() if name in names})
    frozen = FrozenProperties(properties)
    dict.pop(frozen, VERSION, None)  # before anyone else holds a reference
    return frozen


def own_copy(
    properties: Mapping[str, Value | None], reserved: frozenset[str] = frozenset()
) -> FrozenProperties:
    """Return an immutable copy without None values.

    Raises `ValueError` for a name in `reserved`, and `TypeError` for a value of a type that no table stores.
    """
    if not reserved.isdisjoint(properties):
        names = ", ".join(sorted(reserved.intersection(properties)))
        raise ValueError(f"These property names are reserved: {names}.")
    check_types(properties)
    return FrozenProperties({name: value for name, value in properties.items() if value is not None})


def stream_properties(properties: Mapping[str, Value | None]) -> FrozenProperties:
    """Return an immutable copy of a stream's properties. Raises as `own_copy` does."""
    return own_copy(properties, RESERVED_HEADER_NAMES)


@dataclass(frozen=True, slots=True)
class Include(Operation):
    """A change to another row in the stream's partition, made in the same transaction as a write.

    The prefix of a virtual partition is not added to the row key. Replace, merge and delete need the row's ETag, or
    `"*"` for no condition, unless an earlier include of the same write changes the row. In the result of a write,
    `etag` is the new ETag, "" for a deleted row.
    """

    properties: Properties = NO_PROPERTIES

    def __post_init__(self) -> None:
        if type(self.properties) is not FrozenProperties:
            object.__setattr__(self, "properties", own_copy(self.properties))

    @classmethod
    def replace(cls, row_key: str, properties: Properties, etag: str | None = None) -> Self:
        """Return an include that replaces all properties of an existing row."""
        return cls(Verb.REPLACE, row_key, own_copy(properties), etag)

    @classmethod
    def merge(cls, row_key: str, properties: Properties, etag: str | None = None) -> Self:
        """Return an include that sets some properties of an existing row."""
        return cls(Verb.MERGE, row_key, own_copy(properties), etag)

    @classmethod
    def delete(cls, row_key: str, etag: str | None = None) -> Self:
        """Return an include that deletes an existing row."""
        return cls(Verb.DELETE, row_key, NO_PROPERTIES, etag)


class _Amount(Enum):
    """A net effect of changes to a row that no `Verb` describes."""

    UNTOUCHED = "untouched"
    UNDONE = "inserted and deleted"
    REFUSED = "refused"


_UNTOUCHED, _UNDONE, _REFUSED = _Amount
_FURTHER = (Verb.INSERT, Verb.REPLACE, Verb.MERGE, Verb.DELETE, Verb.INSERT_OR_MERGE, Verb.INSERT_OR_REPLACE)
_INSERT, _REPLACE, _MERGE, _DELETE, _OR_MERGE, _OR_REPLACE = _FURTHER

# The net change of a row, by its net change so far and the next verb, in the order of `_FURTHER`. Refused are sequences
# that would fail if they were run one by one, and the deletion of a row that may not exist.
_CHAINING: dict[Verb | _Amount, tuple[Verb | _Amount, ...]] = {
    _UNTOUCHED: (_INSERT, _REPLACE, _MERGE, _DELETE, _OR_MERGE, _OR_REPLACE),
    _INSERT: (_REFUSED, _INSERT, _INSERT, _UNDONE, _INSERT, _INSERT),
    _REPLACE: (_REFUSED, _REPLACE, _REPLACE, _DELETE, _REPLACE, _REPLACE),
    _MERGE: (_REFUSED, _REPLACE, _MERGE, _DELETE, _MERGE, _REPLACE),
    _DELETE: (_REPLACE, _REFUSED, _REFUSED, _REFUSED, _REPLACE, _REPLACE),
    _OR_MERGE: (_REFUSED, _OR_REPLACE, _OR_MERGE, _REFUSED, _OR_MERGE, _OR_REPLACE),
    _OR_REPLACE: (_REFUSED, _OR_REPLACE, _OR_REPLACE, _REFUSED, _OR_REPLACE, _OR_REPLACE),
    _UNDONE: (_INSERT, _REFUSED, _REFUSED, _REFUSED, _INSERT, _INSERT),
}


def combine(includes: Iterable[Include]) -> tuple[Include, ...]:
    """Combine the includes of each row into one. Raises `ValueError` if a change cannot follow an earlier one."""
    changes: dict[str, Include | _Amount] = {}
    for include in includes:
        changes[include.row_key] = _combine(changes.get(include.row_key, _UNTOUCHED), include)
    return tuple([change for change in changes.values() if isinstance(change, Include)])


def _combine(so_far: Include | _Amount, further: Include) -> Include | _Amount:
    before = so_far.verb if isinstance(so_far, Include) else so_far
    after = _CHAINING[before][_FURTHER.index(further.verb)]
    if after is _REFUSED:
        what = f"cannot be {further.verb.value!r} after {before.value!r}"
        raise ValueError(f"The row {further.row_key!r} {what} in one write.")
    if isinstance(so_far, Include) and further.etag not in (None, ANY_ETAG, so_far.etag):
        raise ValueError(f"The row {further.row_key!r} has two different ETags in one write.")
    if not isinstance(after, Verb):
        return after
    if not isinstance(so_far, Include):
        if not further.etag and after in CONDITIONAL:
            what = f"The {after.value} of the row {further.row_key!r}"
            raise ValueError(f"{what} needs the row's ETag, or '*' for no condition.")
        return replace(further, verb=after)
    kept = so_far.properties if further.verb in (_MERGE, _OR_MERGE) else {}
    return replace(so_far, verb=after, properties={**kept, **further.properties})


@dataclass(frozen=True, slots=True)
class EventId:
    """The id of an event: not empty, and unique in its stream."""

    value: str

    def __post_init__(self) -> None:
        if not self.value:
            raise ValueError("An event's id is empty: use None for an event without an id.")

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True, init=False)
class EventData:
    """An event to write.

    A second event with the same `id` is rejected. Each id is stored as a row. `includes` are other rows to change in
    the transaction that writes the event.
    """

    properties: Properties
    id: EventId | None
    includes: tuple[Include, ...]

    def __init__(
        self,
        properties: Mapping[str, Value | None] = NO_PROPERTIES,
        id: EventId | str | UUID | None = None,  # noqa: A002 - the name of the field
        includes: Iterable[Include] = (),
    ) -> None:
        object.__setattr__(self, "properties", own_copy(properties, RESERVED_NAMES))
        object.__setattr__(self, "id", id if id is None or isinstance(id, EventId) else EventId(str(id)))
        object.__setattr__(self, "includes", tuple(includes))


@dataclass(frozen=True, slots=True)
class RecordedEvent:
    """An event of a stream. Versions count from 1 without gaps.

    Events are equal if their versions and properties are. `id` is set only on events returned by a write, or by a read
    with `ids=True`. `time` is set only on events that were read. It is the time of the write, by the clock of the
    service or of the machine. `etag` never changes.
    """

    version: int
    properties: Properties
    id: EventId | None = field(default=None, compare=False)
    time: datetime | None = field(default=None, compare=False)
    etag: str | None = field(default=None, compare=False)


HEADER = "SS-HEAD"
EVENT = "SS-SE-"
EVENT_ID = "SS-UID-"
MAX_VERSION = 9_999_999_999
SEPARATOR = "|"
_DIGITS = 10

# A stream is deleted by row key prefixes, so no virtual partition may begin with one.
_LIKE_A_STREAM_ROW = re.compile(r"(^|\|)SS-|SS-(HEAD|SE-|UID-)")


@dataclass(frozen=True, slots=True, init=False)
class Partition:
    """The table, partition key and row key prefix of one stream.

    `Partition(table, "orders")` holds one stream. `Partition(table, "orders|7")` and `Partition(table, "orders", "7")`
    are the same *virtual* partition: one of many streams under the key `orders`. Its row keys begin with `7|`.
    `Partition.exact` takes a key verbatim, `|` included. A prefix cannot begin with `SS-`.
    """

    table: Table
    key: str
    prefix: str

    def __init__(self, table: Table, key: str, prefix: str | None = None) -> None:
        if prefix is None:
            key, separator, prefix = key.partition(SEPARATOR)
            if separator and not prefix:
                raise ValueError("The partition's key ends with '|' and has no prefix after it.")
        elif not prefix:
            raise ValueError("The partition's prefix is empty.")
        elif SEPARATOR in key:
            raise ValueError("The partition's key has a '|' and a prefix is given too: use one of them.")
        if not key:
            raise ValueError("The partition's key is empty.")
        _initialise(self, table, key, prefix + SEPARATOR if prefix else "")

    @classmethod
    def exact(cls, table: Table, key: str, prefix: str = "") -> Partition:
        """Return the partition with exactly this key and row key prefix: no separator is looked for or added.

        Streamstone's `Partition(table, "orders", "7")` is `Partition.exact(table, "orders", "7")` here.
        """
        partition = cls.__new__(cls)
        _initialise(partition, table, key, prefix)
        return partition

    def __str__(self) -> str:
        return f"{self.key}{SEPARATOR}{self.prefix.removesuffix(SEPARATOR)}" if self.prefix else self.key

    @property
    def header(self) -> str:
        """The row key of the stream's header."""
        return self.prefix + HEADER

    def event(self, version: int) -> str:
        """Return the row key of the event with this version."""
        return f"{self.prefix}{EVENT}{version:010d}"

    def event_id(self, event_id: str) -> str:
        """Return the row key that reserves an event id."""
        return f"{self.prefix}{EVENT_ID}{event_id}"

    def version_of(self, row_key: str) -> int | None:
        """Return the version of the event with this row key, or None if the row is not an event of the stream."""
        beginning = self.prefix + EVENT
        digits = row_key[len(beginning) :]
        if len(digits) != _DIGITS or not row_key.startswith(beginning) or not digits.isdecimal():
            return None
        return int(digits)


def _initialise(partition: Partition, table: Table, key: str, prefix: str) -> None:
    if prefix and _LIKE_A_STREAM_ROW.search(prefix):
        raise ValueError(f"The prefix {prefix!r} looks like a stream's row keys, which begin with 'SS-'.")
    object.__setattr__(partition, "table", table)
    object.__setattr__(partition, "key", key)
    object.__setattr__(partition, "prefix", prefix)


@dataclass(frozen=True, slots=True)
class StreamValue:
    """A stream's partition and header, as last read or written. A stream without ETag is *transient*: not written."""

    partition: Partition
    etag: str | None = None
    version: int = 0
    first_version: int = 0
    """The low watermark: the first version that was not truncated. 1 for a transient stream, 0 if unknown."""
    properties: Properties | None = None
    """The stream's properties, or None if they were not read."""
    partial: bool = False
    """Whether only some properties were read. If so, a write keeps the properties that were not read."""

    def __post_init__(self) -> None:
        if self.properties is not None and type(self.properties) is not FrozenProperties:
            object.__setattr__(self, "properties", stream_properties(self.properties))
        if self.etag is None and not self.first_version:
            object.__setattr__(self, "first_version", 1)


StreamT = TypeVar("StreamT", bound=StreamValue)
StreamT_co = TypeVar("StreamT_co", bound=StreamValue, covariant=True)


HEADER_NAMES = (VERSION, FIRST_VERSION, TOMBSTONE)


def header_row(version: int, first_version: int, properties: Properties) -> dict[str, Value]:
    """Return the properties of the header row. They include the low watermark `first_version` only if it exceeds 1."""
    row: dict[str, Value] = {VERSION: version}
    if first_version > 1:
        row[FIRST_VERSION] = first_version
    row.update(properties)
    return row


def header_operation(
    stream: StreamValue, version: int, own: Properties | None, *, keep: bool = False
) -> Operation:
    """Return the operation that writes the header with a new version and the stream's new properties `own`.

    If `own` is None, the stream keeps its properties. If `keep` is also set, only the version of an existing header
    is written.
    """
    row_key = stream.partition.header
    if stream.etag is None:
        return Operation.insert(row_key, header_row(version, 1, own or stream.properties or NO_PROPERTIES))
    if own is not None:
        return Operation.replace(row_key, header_row(version, stream.first_version, own), stream.etag)
    # A merge keeps unknown properties.
    if keep or stream.partial or stream.properties is None:
        return Operation.merge(row_key, {VERSION: version}, stream.etag)
    row = header_row(version, stream.first_version, stream.properties)
    # A replacement would drop an unknown watermark.
    change = Operation.replace if stream.first_version else Operation.merge
    return change(row_key, row, stream.etag)


def stream_written(stream: StreamT, etag: str, version: int, own: Properties | None) -> StreamT:
    """Return the stream after a write that set its properties to `own`, or kept them if `own` is None."""
    properties, partial = stream.properties, stream.partial
    if own is not None:
        properties, partial = own, False
    elif stream.etag is None and properties is None:
        properties = NO_PROPERTIES
    return replace(stream, etag=etag, version=version, properties=properties, partial=partial)


def is_header(row: Row) -> bool:
    """Return whether a row is a header: it has a version and is not a tombstone. The caller checks the row key."""
    return isinstance(row.properties.get(VERSION), int) and not is_tombstone(row)


def is_tombstone(row: Row) -> bool:
    """Return whether a row is the header of a deleted stream."""
    return row.properties.get(TOMBSTONE) is True


def _is_count(value: Value | None) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_VERSION + 1


def versions_of(row: Row) -> tuple[int, int]:
    """Return the version and the low watermark of a header row. Raises `DamagedRowError` if one is not a number."""
    version, first_version = row.properties.get(VERSION), row.properties.get(FIRST_VERSION, 1)
    if not _is_count(version) or not _is_count(first_version):
        raise DamagedRowError(row.partition_key, row.row_key, "is not a header: its version is not a number")
    return version, first_version
