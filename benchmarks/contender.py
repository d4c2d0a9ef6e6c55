"""A contender: a way to bring a message log to its final states, and what is measured of it.

The life of a contender, in a process of its own: `start` once; then for each turn `prepare`, `work`, `states`,
`facts` and `finish`. Only `work` is measured. What the states must be is known beforehand, so a contender that
is quick because it does something else is an error, not a winner.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from benchmarks.logs import Log
from benchmarks.shooting import States


@dataclass(frozen=True, slots=True)
class Setting:
    """Where and how all contenders of a run work.

    `folder` is a contender's own, `shared` the same for all. `cores` is the number of processes that work at once,
    `in_flight` the number of streams that each of them has under way on a store on the network.
    """

    folder: Path
    shared: Path
    cores: int
    in_flight: int


@dataclass(frozen=True, slots=True)
class Measurement:
    """One turn of one contender. `facts` are sizes and counts of what it left behind."""

    seconds: float
    messages: int
    facts: Mapping[str, float] = field(default_factory=dict)

    @property
    def rate(self) -> float:
        """Messages per second."""
        return self.messages / self.seconds


class ContenderFailedError(Exception):
    """Raised in place of what a contender raised in its process, which may not be able to leave it. Holds its text."""


class DisagreementError(Exception):
    """Raised when a contender ended in other states than the plain fold of its log."""


class Contender(ABC):
    """One way to bring a log to its final states."""

    durability: ClassVar[str]
    """What survives when the process, or the machine, dies after `work` has ended."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting

    def start(self) -> None:  # noqa: B027 - most have nothing to do here
        """Start what lives as long as the process: a Spark session, other processes."""

    @abstractmethod
    def prepare(self, log: Log, folder: Path) -> None:
        """Get ready to work on a log, with everything new in an empty folder."""

    @abstractmethod
    def work(self) -> None:
        """Handle all messages of the log. This is what is measured."""

    @abstractmethod
    def states(self) -> States:
        """Return the state that each stream ended in, read from where the contender keeps it."""

    def facts(self) -> Mapping[str, float]:
        """Return sizes and counts of what was left behind."""
        return {}

    def finish(self) -> None:  # noqa: B027 - most have nothing to do here
        """End what `prepare` began."""

    def close(self) -> None:  # noqa: B027 - most have nothing to do here
        """End what `start` began."""


def check(states: States, expected: States, name: str) -> None:
    """Raise `DisagreementError` unless a contender ended in the expected states, all of them and no other."""
    if states == expected:
        return
    wrong = sorted(key for key in states.keys() | expected.keys() if states.get(key) != expected.get(key))
    message = (
        f"{name} ended in another state in {len(wrong)} of {len(expected)} streams, such as {wrong[0]}: "
        f"{states.get(wrong[0], 'no state')} instead of {expected.get(wrong[0], 'no state')}."
    )
    raise DisagreementError(message)
