"""What keeps messages from a receiver: a limit of how many a second, and a circuit breaker while it takes none."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from eventstore.backoff import pause_seconds
from runtime.errors import DeliveryStoppedError

_ASK_AGAIN = 0.05

Stopwatch = Callable[[], float]
"""Gives seconds since some moment."""


class Pace:
    """Lets one message pass at a time, evenly spread over each second; None lets all pass."""

    def __init__(self, per_second: float | None, clock: Stopwatch = time.monotonic) -> None:
        self._interval = 0.0 if per_second is None else 1 / per_second
        self._clock = clock
        self._next = clock()

    def take_turn(self) -> float:
        """Take the next turn, and return in how many seconds it is."""
        now = self._clock()
        turn = max(self._next, now)
        self._next = turn + self._interval
        return turn - now

    def give_back(self) -> None:
        """Give a turn back that was not used."""
        self._next -= self._interval


@dataclass(frozen=True, slots=True)
class BreakerPolicy:
    """When a circuit breaker opens: after so many `failures` in a row.

    It lets one message try again after `first` seconds; while these fail too, the pauses double up to `longest`. When
    the receiver has taken none for `give_up_after` seconds, the delivery stops.
    """

    failures: int = 5
    first: float = 1.0
    longest: float = 60.0
    give_up_after: float = 600.0


class CircuitBreaker:
    """Holds messages back while their receiver takes none, so that they are not lost or tried in vain.

    Closed it lets all pass, open none. When its pause is over, one message passes, and decides.
    """

    def __init__(self, policy: BreakerPolicy | None = None, clock: Stopwatch = time.monotonic) -> None:
        self._policy = policy or BreakerPolicy()
        self._clock = clock
        self._failures = 0
        self._pauses = 0
        self._since: float | None = None
        self._until = 0.0
        self._is_trying = False

    @property
    def is_open(self) -> bool:
        """Whether messages are held back."""
        return self._since is not None

    def seconds_to_wait(self) -> float:
        """Return 0 when a message may pass, else after how many seconds to ask again."""
        if not self.is_open:
            return 0
        remaining = self._until - self._clock()
        if self._is_trying or remaining > 0:
            return max(remaining, _ASK_AGAIN)
        self._is_trying = True
        return 0

    def note_answer(self) -> None:
        """Close: the receiver answered."""
        self._failures, self._pauses, self._since = 0, 0, None
        self._is_trying = False

    def note_failure(self, error: Exception | None) -> None:
        """Count a failure. Raises `DeliveryStoppedError` when there was nothing else for too long."""
        self._failures += 1
        if self._failures < self._policy.failures or (self.is_open and not self._is_trying):
            return  # what was sent before it opened says nothing new
        now = self._clock()
        since = self._since = now if self._since is None else self._since
        if now - since >= self._policy.give_up_after:
            message = (
                f"The receiver has taken no message for {now - since:.0f} s, and the last error was "
                f"{type(error).__name__}: {error}. Nothing more is sent; what was sent is recorded."
            )
            raise DeliveryStoppedError(message)
        self._pauses += 1
        self._until = now + pause_seconds(self._pauses, self._policy.first, self._policy.longest)
        self._is_trying = False

    def note_nothing(self) -> None:
        """Let another message pass in place of one that needed no sending."""
        self._is_trying = False
