"""By how many bytes messages make a table grow."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import NamedTuple

_CLEARLY_LESS = 0.75


class Growth(NamedTuple):
    """The bytes that a message takes at first, and those that it takes in the long run."""

    at_first: float
    in_the_end: float

    @classmethod
    def of(cls, sizes: Sequence[float]) -> Growth:
        """Return the growth that a table's sizes show, one size after each message.

        Some keep their newest messages in one way, and when these are enough, pack them in another that takes less:
        then the table grows clearly less than it usually does, or shrinks. What is kept in the long run is the growth
        from the first time that this happens to the last.
        """
        steps = [after - before for before, after in pairwise(sizes)]
        usual = median(steps)
        packed = [number for number, step in enumerate(steps, 1) if step < _CLEARLY_LESS * usual]
        if not packed or packed[0] == packed[-1]:
            return cls(usual, usual)
        first, last = packed[0], packed[-1]
        return cls(usual, (sizes[last] - sizes[first]) / (last - first))
