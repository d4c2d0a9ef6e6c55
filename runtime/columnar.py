"""Sequences that are kept column by column: what most rows need is done for a whole column at once."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any, ClassVar, Self, TypeVar, overload

R = TypeVar("R")


class Columnar(Sequence[R]):
    """Base of sequences whose rows are named tuples, each made when it is asked for.

    A subclass is a dataclass with slots: one list for each field of `row`, in their order.
    """

    __slots__: tuple[str, ...] = ()
    row: ClassVar[Any]
    _all: ClassVar[Any]

    def __init_subclass__(cls) -> None:
        if cls.__slots__:
            cls._all = attrgetter(*cls.__slots__)

    @classmethod
    def of(cls, rows: Iterable[R]) -> Self:
        """Return rows as columns."""
        columns: Any = zip(*rows, strict=True)
        return cls(*map(list, columns))

    def __len__(self) -> int:
        return len(getattr(self, self.__slots__[0]))

    @overload
    def __getitem__(self, index: int) -> R: ...

    @overload
    def __getitem__(self, index: slice) -> Self: ...

    def __getitem__(self, index: int | slice) -> R | Self:
        found = [column[index] for column in self.columns()]
        if isinstance(index, slice):
            return type(self)(*found)
        row: R = self.row._make(found)
        return row

    def __iter__(self) -> Iterator[R]:
        return map(self.row._make, zip(*self.columns(), strict=True))

    def extend(self, other: Self) -> None:
        """Add rows at the end."""
        for column, added in zip(self.columns(), other.columns(), strict=True):
            column.extend(added)

    def columns(self) -> tuple[list[Any], ...]:
        """Return the columns, in the order of the fields of a row."""
        columns: tuple[list[Any], ...] = self._all(self)
        return columns


def pieces(joined: bytes, size: int) -> list[bytes]:
    """Return values of equal size that were joined. Raises `ValueError` when the last one is shorter."""
    count, rest = divmod(len(joined), size)
    if rest:
        message = f"{len(joined)} bytes are no values of {size} bytes"
        raise ValueError(message)
    return list(struct.unpack(f"{size}s" * count, joined))
