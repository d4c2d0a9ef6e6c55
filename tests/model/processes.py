"""Processes: what a piece of code sees of the process it runs in. No two are alike.

What must not depend on the process, or must be recorded, comes from here in the code under check, and differs whenever
a message is delivered anew.
"""

from __future__ import annotations

from hashlib import sha256

NOW = 1_767_225_600_000_000
"""The beginning of 2026, in microseconds."""

SECOND = 1_000_000
_SKEW = (0, 40, -25, 90, -60, 15)
"""By how many seconds the clocks of processes differ; one that starts later may be behind."""


class Process:
    """One process, by the number of the delivery that it works on."""

    def __init__(self, number: int, now: int = NOW) -> None:
        self.number = number
        self._now = now + SECOND * (_SKEW[number % len(_SKEW)] + 7 * number)
        self._drawn = 0

    def clock(self) -> int:
        """Return the time, which goes on by a second each time."""
        self._now += SECOND
        return self._now

    def draw(self) -> bytes:
        """Return bytes that no other process, and no other call, gives: as `os.urandom` would."""
        self._drawn += 1
        return sha256(f"{self.number}/{self._drawn}".encode()).digest()


class Surroundings:
    """The process whose code runs just now."""

    process = Process(0)


def sky() -> str:
    """Look out of the window: each process sees another colour."""
    return f"colour {Surroundings.process.number}"
