"""A model of what becomes of messages that handlers refuse, which keeps everything; and attempts that are disturbed."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from hypothesis import strategies as st

from eventstore import Table
from tests.unit.runtime.accidents import At, CrashError, crash, disturbed_once, lose_answer
from tests.unit.runtime.dead_letters.post import DAMAGED, NEEDS

T = TypeVar("T")

Disturbances = st.lists(st.tuples(st.integers(1, 8), st.sampled_from([crash, lose_answer])), max_size=3)
"""At which calls attempts are disturbed, and how."""


@dataclass
class Kept:
    """A letter as the model keeps it."""

    name: str
    reason: str
    parks: bool
    tries: int = 1


@dataclass
class Model:
    """What took effect in this history of the object, what waits, and what was given up with which reason."""

    processed: list[str] = field(default_factory=list)
    letters: list[Kept] = field(default_factory=list)
    given_up: dict[str, str] = field(default_factory=dict)
    enqueued_at: dict[str, int] = field(default_factory=dict)
    kept_from: int = 1
    horizon: int | None = None
    is_forgotten: bool = False

    def batch(self, names: Sequence[str], *, park: bool) -> list[str]:
        """Return the ends of a batch."""
        stopped, found = False, []
        for name in names:
            end = self._end(name, stopped=stopped and park)
            if end in ("handler_error", "held_back"):
                stopped = True
                if self._letter(name) is None and name not in self.given_up:
                    is_parked = any(letter.parks for letter in self.letters)
                    self.letters.append(Kept(name, end, park or is_parked))
            elif end == "processed":
                self.processed.append(name)
            found.append(end)
        return found

    def redrive(self, names: Sequence[str]) -> list[str]:
        """Return the ends of a redrive over the letters of these messages."""
        return [self._redriven(name) for name in names]

    def discard(self, name: str) -> None:
        """Give a letter up."""
        letter = self._letter(name)
        if letter is not None:
            self.letters.remove(letter)
            self.given_up[name] = letter.reason

    def forget(self, now: int, *, restart: bool) -> None:
        """Forget the object; with `restart` a new history begins."""
        self.processed, self.letters, self.given_up, self.kept_from = [], [], {}, 1
        self.horizon, self.is_forgotten = now, not restart

    def _end(self, name: str, *, stopped: bool) -> str:
        if self.is_forgotten:
            return "forgotten"
        letter = self._letter(name)
        if name in self.processed and self.processed.index(name) + 1 >= self.kept_from:
            return "duplicate"
        if letter is not None:
            return letter.reason
        if name in self.given_up:
            return self.given_up[name]
        if self.horizon is not None and self.enqueued_at[name] <= self.horizon:
            return "too_late"
        assert name not in self.processed
        if stopped or any(letter.parks for letter in self.letters):
            return "held_back"
        return "handler_error" if self._fails(name) else "processed"

    def _redriven(self, name: str) -> str:
        letter = self._letter(name)
        if letter is None:
            return self._end(name, stopped=False)
        if any(other.parks for other in self.letters[: self.letters.index(letter)]):
            return "held_back"
        if self._fails(name):
            letter.reason, letter.tries = "handler_error", letter.tries + 1
            return "handler_error"
        self.letters.remove(letter)
        self.processed.append(name)
        return "processed"

    def _fails(self, name: str) -> bool:
        return name in DAMAGED or (name in NEEDS and NEEDS[name] not in self.processed)

    def _letter(self, name: str) -> Kept | None:
        return next((letter for letter in self.letters if letter.name == name), None)


def attempts(table: Table, disturbances: Any, attempt: Callable[[Table], T]) -> T:
    """Do something again and again, disturbed at one of its calls, and at last undisturbed."""
    for number, disturbance in disturbances:
        with suppress(CrashError):
            attempt(disturbed_once(table, At(number, disturbance)))
    return attempt(table)
