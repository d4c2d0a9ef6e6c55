"""The arguments of a call."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from handlers.lint.values.value import UNKNOWN, Value


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments of a call; `is_open` when a starred argument may add more."""

    positional: tuple[Value, ...] = ()
    named: tuple[tuple[str, Value], ...] = ()
    is_open: bool = False

    def __iter__(self) -> Iterator[Value]:
        yield from self.positional
        yield from (value for _, value in self.named)

    def first(self) -> Value:
        """Return the first argument, unknown when there is none."""
        return self.positional[0] if self.positional else UNKNOWN

    def get(self, position: int, name: str) -> Value | None:
        """Return an argument by its position or name, None when it is not given."""
        if position < len(self.positional):
            return self.positional[position]
        return dict(self.named).get(name, UNKNOWN if self.is_open else None)

    def after(self, *first: Value) -> Arguments:
        """Return the same arguments with others before them."""
        return Arguments((*first, *self.positional), self.named, self.is_open)
