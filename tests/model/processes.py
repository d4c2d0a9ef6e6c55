"""Processes: what a piece of code sees of the process it runs in. No two are alike.

What must not depend on the process, or must be recorded, comes from here in the code under check, and differs whenever
a message is delivered anew.
"""

from __future__ import annotations

from functools import cache
from hashlib import sha256

NOW = 1_767_225_600_000_000
"""The beginning of 2026, in microseconds."""

SECOND = 1_000_000
_SKEW = (0, 40, -25, 90, -60, 25)
"""By how many seconds the clocks of processes differ; one that starts later may be behind."""


ID = 12
"""How many digits an id has."""

DRAWN: dict[str, tuple[str, int, int]] = {}
"""What was drawn so far, by the texts in which it may be found: the form, the process, and which of its draws it was.

No two draws are alike, and one is the same whenever it is made again.
"""


class ComparedError(Exception):
    """Raised when code compares times of which it was said that it does not."""


class IncomparableTime(int):
    """A time that a clock showed, which may be kept and told, and compared with times before there were clocks only."""

    __slots__ = ()

    def _compared(self, other: int, *, is_so: bool) -> bool:
        if other > NOW - 24 * 60 * 60 * SECOND:
            raise ComparedError(f"{int(self)} is compared with {int(other)}.")
        return is_so

    def __lt__(self, other: int) -> bool:
        return self._compared(other, is_so=False)

    def __le__(self, other: int) -> bool:
        return self._compared(other, is_so=False)

    def __gt__(self, other: int) -> bool:
        return self._compared(other, is_so=True)

    def __ge__(self, other: int) -> bool:
        return self._compared(other, is_so=True)

    def __sub__(self, other: int) -> IncomparableTime:
        return IncomparableTime(int(self) - other)


class Process:
    def __init__(self, number: int, now: int = NOW) -> None:
        self.number = number
        self._lives_now = now == NOW
        self._now = now + SECOND * (_SKEW[number % len(_SKEW)] + 7 * number)
        self._drawn = 0

    def clock(self) -> int:
        """Return the time, which goes on by a second each time."""
        self._now += SECOND
        is_compared = Dependencies.times_are_compared or not self._lives_now
        return self._now if is_compared else IncomparableTime(self._now)

    def wait_until(self, time: int) -> None:
        self._now = max(self._now, time)

    def draw(self) -> bytes:
        """Return bytes that no other process, and no other call, gives: as `os.urandom` would."""
        self._drawn += 1
        return _drawn(self.number, self._drawn)

    def draw_id(self) -> str:
        """Return an id that no other process, and no other call, gives."""
        return self.draw().hex()[:ID]

    @property
    def name(self) -> str:
        return f"run {self.number}"

    @property
    def now(self) -> int:
        return self._now

    @property
    def drawn(self) -> int:
        return self._drawn


@cache
def _drawn(number: int, drawn: int) -> bytes:
    """Return what a process drew, and note all forms in which it may be found again."""
    content = sha256(f"{number}/{drawn}".encode()).digest()
    DRAWN[content.hex()[:ID]] = "id", number, drawn
    DRAWN[content.hex()] = "hex", number, drawn
    DRAWN[sha256(content).hexdigest()] = "digest", number, drawn
    return content


class Dependencies:
    process = Process(0)
    times_are_compared = True


def sky() -> str:
    """Look out of the window: each process sees another colour."""
    return f"colour {Dependencies.process.number}"


def draw_id() -> str:
    """Return an id that the process draws whose code runs just now."""
    return Dependencies.process.draw_id()
