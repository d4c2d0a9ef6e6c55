"""How far a publication is: how many of its outputs are sent, as it is shown to people."""

from __future__ import annotations

from collections.abc import Callable

Show = Callable[[int, int | None], None]
"""Is told how many outputs are sent, and of how many, if that is known."""


class Tally:
    """Adds up how far slices are, and shows the sum; `of` is how many outputs all slices have."""

    def __init__(self, of: int | None, show: Show | None) -> None:
        self._of = of
        self._show = show
        self._positions: dict[int, int] = {}
        self._sum = 0

    def put(self, number: int, position: int) -> None:
        """Note that so many outputs of a slice are sent, also by others."""
        self._sum += position - self._positions.get(number, 0)
        self._positions[number] = position

    def show(self) -> None:
        """Show the sum."""
        if self._show is not None:
            self._show(self._sum, self._of)
