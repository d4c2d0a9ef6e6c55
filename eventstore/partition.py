"""Where a stream is: a table, a partition key, and a prefix when streams share the partition."""

from __future__ import annotations

import re
from dataclasses import dataclass

from eventstore.port import Table

HEADER = "SS-HEAD"
EVENT = "SS-SE-"
EVENT_ID = "SS-UID-"
MAX_VERSION = 9_999_999_999
SEPARATOR = "|"
_DIGITS = 10

# A stream is deleted by the beginnings of its row keys: no other stream's rows may begin like them.
_LIKE_A_STREAM_ROW = re.compile(r"(^|\|)SS-|SS-(HEAD|SE-|UID-)")


@dataclass(frozen=True, slots=True, init=False)
class Partition:
    """The place of one stream.

    `Partition(table, "orders")` is a partition with one stream. `Partition(table, "orders|7")` and
    `Partition(table, "orders", "7")` are the same *virtual* partition: one of many streams under the key
    `orders`, whose rows begin with `7|`. `Partition.exact` takes a key as it is, `|` included.

    A prefix does not begin with `SS-`, as the rows of a stream do.
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
        _fill(self, table, key, prefix + SEPARATOR if prefix else "")

    @classmethod
    def exact(cls, table: Table, key: str, prefix: str = "") -> Partition:
        """Return the partition with this very key, whose rows begin with this very prefix.

        Streamstone's `Partition(table, "orders", "7")` puts nothing behind the prefix: its rows begin with `7`, and the
        same place is `Partition.exact(table, "orders", "7")` here.
        """
        partition = cls.__new__(cls)
        _fill(partition, table, key, prefix)
        return partition

    def __str__(self) -> str:
        return f"{self.key}{SEPARATOR}{self.prefix.removesuffix(SEPARATOR)}" if self.prefix else self.key

    @property
    def header(self) -> str:
        """The row key of the stream's header."""
        return self.prefix + HEADER

    def event(self, version: int) -> str:
        """Return the row key of an event."""
        return f"{self.prefix}{EVENT}{version:010d}"

    def event_id(self, event_id: str) -> str:
        """Return the row key that marks an event id as used."""
        return f"{self.prefix}{EVENT_ID}{event_id}"

    def version_of(self, row_key: str) -> int | None:
        """Return the version of the event in this row, None when it holds no event of the stream."""
        beginning = self.prefix + EVENT
        digits = row_key[len(beginning) :]
        if len(digits) != _DIGITS or not row_key.startswith(beginning) or not digits.isdecimal():
            return None
        return int(digits)


def _fill(partition: Partition, table: Table, key: str, prefix: str) -> None:
    if prefix and _LIKE_A_STREAM_ROW.search(prefix):
        raise ValueError(
            f"The partition's prefix {prefix!r} is like the row keys of a stream, which begin with 'SS-'."
        )
    object.__setattr__(partition, "table", table)
    object.__setattr__(partition, "key", key)
    object.__setattr__(partition, "prefix", prefix)
