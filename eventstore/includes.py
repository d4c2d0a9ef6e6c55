"""Rows that are changed in the same transaction as a stream.

Several changes of one row within one write become one: insert then replace is an insert of the latest
data, insert then delete is nothing at all, delete then insert is a replace, and so on. A sequence that
could not be carried out one by one is an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from eventstore.port import ANY_ETAG, Operation, Properties, Value, Verb


@dataclass(frozen=True, slots=True)
class Include:
    """A change of one row beside the stream's own, in the stream's partition.

    The row key is taken as it is; the prefix of a virtual partition is not added. A replace or delete needs
    the row's ETag, or `"*"` to do without a condition. In the result of a write, `etag` is the row's new one,
    and "" for a deleted row.
    """

    verb: Verb
    row_key: str
    properties: Properties
    etag: str | None = None

    @classmethod
    def insert(cls, row_key: str, properties: Mapping[str, Value]) -> Include:
        """Return the insert of a row that must not be there."""
        return cls(Verb.INSERT, row_key, MappingProxyType(dict(properties)))

    @classmethod
    def replace(cls, row_key: str, properties: Mapping[str, Value], etag: str) -> Include:
        """Return the replacement of a row that must be there."""
        return cls(Verb.REPLACE, row_key, MappingProxyType(dict(properties)), _etag(etag))

    @classmethod
    def delete(cls, row_key: str, etag: str) -> Include:
        """Return the deletion of a row that must be there."""
        return cls(Verb.DELETE, row_key, MappingProxyType({}), _etag(etag))

    @classmethod
    def insert_or_merge(cls, row_key: str, properties: Mapping[str, Value]) -> Include:
        """Return a change of some properties of a row, which is made when it is not there."""
        return cls(Verb.INSERT_OR_MERGE, row_key, MappingProxyType(dict(properties)))

    @classmethod
    def insert_or_replace(cls, row_key: str, properties: Mapping[str, Value]) -> Include:
        """Return the replacement of a row, which is made when it is not there."""
        return cls(Verb.INSERT_OR_REPLACE, row_key, MappingProxyType(dict(properties)))

    def operation(self) -> Operation:
        """Return the change as an operation of a transaction."""
        return Operation(self.verb, self.row_key, self.properties, self.etag)


def combine(includes: Iterable[Include]) -> tuple[Include, ...]:
    """Return at most one change for each row, in the order in which the rows first come.

    Raises `ValueError` when the changes of a row cannot follow each other.
    """
    changes: dict[str, Include] = {}
    undone: set[str] = set()
    for include in includes:
        row_key = include.row_key
        if row_key in undone:
            changes[row_key] = _after_nothing(include)
            undone.remove(row_key)
        elif row_key not in changes:
            changes[row_key] = include
        elif changes[row_key].verb is Verb.INSERT and include.verb is Verb.DELETE:
            del changes[row_key]
            undone.add(row_key)
        else:
            changes[row_key] = _follow(changes[row_key], include)
    return tuple(changes.values())


# For each verb that a row's changes amount to so far: what a further one makes of it. Pairs that are not here
# cannot follow each other.
_OUTCOMES: dict[tuple[Verb, Verb], Verb] = {
    (Verb.INSERT, Verb.REPLACE): Verb.INSERT,
    (Verb.INSERT, Verb.INSERT_OR_MERGE): Verb.INSERT,
    (Verb.INSERT, Verb.INSERT_OR_REPLACE): Verb.INSERT,
    (Verb.REPLACE, Verb.REPLACE): Verb.REPLACE,
    (Verb.REPLACE, Verb.DELETE): Verb.DELETE,
    (Verb.REPLACE, Verb.INSERT_OR_MERGE): Verb.REPLACE,
    (Verb.REPLACE, Verb.INSERT_OR_REPLACE): Verb.REPLACE,
    (Verb.DELETE, Verb.INSERT): Verb.REPLACE,
    (Verb.DELETE, Verb.INSERT_OR_MERGE): Verb.REPLACE,
    (Verb.DELETE, Verb.INSERT_OR_REPLACE): Verb.REPLACE,
    (Verb.INSERT_OR_MERGE, Verb.REPLACE): Verb.INSERT_OR_REPLACE,
    (Verb.INSERT_OR_MERGE, Verb.INSERT_OR_MERGE): Verb.INSERT_OR_MERGE,
    (Verb.INSERT_OR_MERGE, Verb.INSERT_OR_REPLACE): Verb.INSERT_OR_REPLACE,
    (Verb.INSERT_OR_REPLACE, Verb.REPLACE): Verb.INSERT_OR_REPLACE,
    (Verb.INSERT_OR_REPLACE, Verb.INSERT_OR_MERGE): Verb.INSERT_OR_REPLACE,
    (Verb.INSERT_OR_REPLACE, Verb.INSERT_OR_REPLACE): Verb.INSERT_OR_REPLACE,
}


def _follow(first: Include, second: Include) -> Include:
    verb = _OUTCOMES.get((first.verb, second.verb))
    if verb is None:
        raise ValueError(
            f"The row {first.row_key!r} cannot have {_words(first.verb)} and then {_words(second.verb)} in one write."
        )
    if second.etag not in (None, ANY_ETAG, first.etag):
        raise ValueError(f"The row {first.row_key!r} is bound to two ETags in one write.")
    merges = second.verb is Verb.INSERT_OR_MERGE and first.verb is not Verb.DELETE
    properties = {**first.properties, **second.properties} if merges else dict(second.properties)
    return replace(first, verb=verb, properties=MappingProxyType(properties))


def _after_nothing(include: Include) -> Include:
    """Return the change of a row that was inserted and deleted before: like the first one, if it may be one."""
    if include.verb in (Verb.REPLACE, Verb.DELETE):
        raise ValueError(
            f"The row {include.row_key!r} is deleted and cannot have {_words(include.verb)} after it."
        )
    return replace(include, verb=Verb.INSERT)


def _words(verb: Verb) -> str:
    return f"an {verb.value}" if verb.value[0] in "aeiou" else f"a {verb.value}"


def _etag(etag: str) -> str:
    if not etag:
        raise ValueError("An ETag is empty; '*' does without a condition.")
    return etag
