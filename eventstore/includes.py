"""Rows that are changed in the same transaction as a stream.

Several changes of one row within one write become one: insert then replace is an insert of the latest
data, insert then delete is nothing at all, delete then insert is a replace, and so on. A sequence that
could not be carried out one by one is an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum

from eventstore.limits import CONDITIONAL
from eventstore.port import ANY_ETAG, Operation, Properties, Value, Verb
from eventstore.properties import NO_PROPERTIES, FrozenProperties, own_copy


@dataclass(frozen=True, slots=True)
class Include:
    """A change of one row that is not the stream's own, in the stream's partition.

    The row key is taken as it is; the prefix of a virtual partition is not added. A replace, merge or delete needs
    the row's ETag, or `"*"` to do without a condition; after another change of the row in the same write it needs
    neither. In the result of a write, `etag` is the row's new one, and "" for a deleted row.
    """

    verb: Verb
    row_key: str
    properties: Properties
    etag: str | None = None

    def __post_init__(self) -> None:
        if type(self.properties) is not FrozenProperties:
            object.__setattr__(self, "properties", own_copy(self.properties))

    @classmethod
    def insert(cls, row_key: str, properties: Mapping[str, Value | None]) -> Include:
        """Return the insert of a row that must not be there."""
        return cls(Verb.INSERT, row_key, own_copy(properties))

    @classmethod
    def replace(
        cls, row_key: str, properties: Mapping[str, Value | None], etag: str | None = None
    ) -> Include:
        """Return the replacement of a row that must be there."""
        return cls(Verb.REPLACE, row_key, own_copy(properties), _etag(etag))

    @classmethod
    def merge(cls, row_key: str, properties: Mapping[str, Value | None], etag: str | None = None) -> Include:
        """Return a change of some properties of a row that must be there."""
        return cls(Verb.MERGE, row_key, own_copy(properties), _etag(etag))

    @classmethod
    def delete(cls, row_key: str, etag: str | None = None) -> Include:
        """Return the deletion of a row that must be there."""
        return cls(Verb.DELETE, row_key, NO_PROPERTIES, _etag(etag))

    @classmethod
    def insert_or_merge(cls, row_key: str, properties: Mapping[str, Value | None]) -> Include:
        """Return a change of some properties of a row, which is made when it is not there."""
        return cls(Verb.INSERT_OR_MERGE, row_key, own_copy(properties))

    @classmethod
    def insert_or_replace(cls, row_key: str, properties: Mapping[str, Value | None]) -> Include:
        """Return the replacement of a row, which is made when it is not there."""
        return cls(Verb.INSERT_OR_REPLACE, row_key, own_copy(properties))

    def operation(self) -> Operation:
        """Return the change as an operation of a transaction."""
        return Operation(self.verb, self.row_key, self.properties, self.etag)


class _Amount(Enum):
    """What the changes of a row amount to when that is no verb."""

    UNTOUCHED = "untouched"
    UNDONE = "inserted and deleted"
    REFUSED = "refused"


_UNTOUCHED, _UNDONE, _REFUSED = _Amount
_INSERT, _REPLACE, _MERGE, _DELETE = Verb.INSERT, Verb.REPLACE, Verb.MERGE, Verb.DELETE
_OR_MERGE, _OR_REPLACE = Verb.INSERT_OR_MERGE, Verb.INSERT_OR_REPLACE

# What a row's changes amount to so far, and what each further one makes of it: the rules for the first change, for the
# 36 pairs, and for what comes after an insert that was undone. Refused is what could not be carried out step by step,
# and the deletion of a row that may not exist.
_FURTHER = (_INSERT, _REPLACE, _MERGE, _DELETE, _OR_MERGE, _OR_REPLACE)
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
_MERGING = frozenset({_MERGE, _OR_MERGE})


def combine(includes: Iterable[Include]) -> tuple[Include, ...]:
    """Return at most one change for each row, in the order in which the rows first come.

    Raises `ValueError` when the changes of a row cannot follow each other.
    """
    changes: dict[str, Include | _Amount] = {}
    for include in includes:
        changes[include.row_key] = _follow(changes.get(include.row_key, _UNTOUCHED), include)
    return tuple([change for change in changes.values() if isinstance(change, Include)])


def _follow(so_far: Include | _Amount, further: Include) -> Include | _Amount:
    before = so_far.verb if isinstance(so_far, Include) else so_far
    after = _CHAINING[before][_FURTHER.index(further.verb)]
    if after is _REFUSED:
        raise ValueError(
            f"The row {further.row_key!r} has {_words(before)} and cannot have {_words(further.verb)} after it "
            "in one write."
        )
    if isinstance(so_far, Include) and further.etag not in (None, ANY_ETAG, so_far.etag):
        raise ValueError(f"The row {further.row_key!r} is bound to two ETags in one write.")
    if not isinstance(after, Verb):
        return after
    if not isinstance(so_far, Include):
        if further.etag is None and after in CONDITIONAL:
            what = f"The {after.value} of the row {further.row_key!r}"
            raise ValueError(f"{what} needs the row's ETag, or '*' to do without a condition.")
        return replace(further, verb=after)
    kept = so_far.properties if further.verb in _MERGING else {}
    return replace(so_far, verb=after, properties={**kept, **further.properties})


def _words(change: Verb | _Amount) -> str:
    if change is _UNDONE:
        return "an insert and a delete"
    return f"an {change.value}" if change.value[0] in "aeiou" else f"a {change.value}"


def _etag(etag: str | None) -> str | None:
    if etag == "":
        raise ValueError("An ETag is empty; '*' does without a condition.")
    return etag
