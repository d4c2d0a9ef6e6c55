"""A series: the cost of batches at some sizes of one quantity, everything else held as it is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from benchmarks.growth.measurement import Cost


@dataclass(frozen=True, slots=True)
class Plan:
    """How a series is measured: its sizes, how many messages take part, and in how many turns.

    What `messages` means is the series' own: those of all streams, of a batch, or of the largest batch.
    """

    sizes: Sequence[int]
    messages: int
    turns: int = 3


class Series(ABC):
    """Measures each size once a turn, so that a slow minute of the machine meets all of them.

    `most` is the most that the time of a unit of work may be at the largest size, as a multiple of that at the
    smallest. Work is a message, or where `work_is_size` as much of a message as the size says.
    """

    title: ClassVar[str]
    quantity: ClassVar[str]
    most: ClassVar[float] = 1.5
    work_is_size: ClassVar[bool] = False

    def __init__(self, plan: Plan, folder: Path) -> None:
        self.plan = plan
        self.folder = folder

    def prepare(self) -> None:  # noqa: B027 - most have nothing to do here
        """Make what all turns begin with."""

    @abstractmethod
    def turn(self, folder: Path, *, counted: bool) -> Iterator[tuple[int, Cost]]:
        """Give the cost at each size, in a new folder. Raises `DisagreementError` when what was done is wrong."""


class SizeBySize(Series):
    """Measures its sizes apart from each other, each with an empty folder of its own."""

    def turn(self, folder: Path, *, counted: bool) -> Iterator[tuple[int, Cost]]:
        """Measure each size."""
        for size in self.plan.sizes:
            place = folder / str(size)
            place.mkdir(parents=True)
            yield size, self.measure(size, place, counted=counted)

    @abstractmethod
    def measure(self, size: int, folder: Path, *, counted: bool) -> Cost:
        """Return what one size costs. Raises `DisagreementError`."""
