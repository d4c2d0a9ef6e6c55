"""What a test chooses for a handler instead of drawing it: random numbers, guids, captured values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from handlers.context import Context
from handlers.draws import Seed, SeededRandom
from handlers.errors import SpecError
from handlers.message import Message
from handlers.testing.invocation import settled


@dataclass(frozen=True, slots=True)
class Choices:
    """The choices for one message; None leaves draws or guids to the message's seed."""

    draws: tuple[Any, ...] | None = None
    guids: tuple[UUID, ...] | None = None
    captured: Mapping[str, Any] = field(default_factory=dict)


class ChosenContext(Context):
    """A context that gives what was chosen, and keeps the messages that are published."""

    __slots__ = ("_choices", "_chosen_random", "_taken_guids", "messages")

    def __init__(self, choices: Choices, *given: Any, **named: Any) -> None:  # noqa: ANN401 - a context's
        super().__init__(*given, **named)
        self._choices = choices
        self._taken_guids = 0
        self._chosen_random = None if choices.draws is None else ChosenRandom(choices.draws)
        self.messages: list[Message] = []

    @property
    def random(self) -> Any:  # noqa: ANN401 - a generator
        """The chosen numbers, or the generator seeded by the message."""
        return super().random if self._chosen_random is None else self._chosen_random

    def new_guid(self) -> UUID:
        """Return the next chosen guid, or the next of the message."""
        guids = self._choices.guids
        if guids is None:
            return super().new_guid()
        if self._taken_guids == len(guids):
            problem = f"The handler takes more than the {len(guids)} guids that were chosen: with_guids(...)."
            raise SpecError(problem)
        self._taken_guids += 1
        return guids[self._taken_guids - 1]

    def capture(self, name: str, function: Callable[[], Any]) -> Any:  # noqa: ANN401 - plain data of any kind
        """Capture the chosen value, or what the function gives."""
        chosen = self._choices.captured
        return super().capture(name, (lambda: chosen[name]) if name in chosen else function)

    def publish(self, message: Message, *, headers: Mapping[str, str] | None = None) -> None:
        """Publish a message and keep it."""
        super().publish(message, headers=headers)
        self.messages.append(settled(message))

    def check_all_taken(self) -> None:
        """Raise `SpecError` when something was chosen that the handler did not ask for."""
        left = self._chosen_random.left if self._chosen_random else 0
        if left:
            problem = f"The handler draws fewer random values than were chosen; left of drawing(...): {left}."
            raise SpecError(problem)
        left = len(self._choices.guids or ()) - self._taken_guids
        if left:
            problem = f"The handler takes fewer guids than were chosen; left of with_guids(...): {left}."
            raise SpecError(problem)
        unused = sorted(set(self._choices.captured) - set(self.captured))
        if unused:
            problem = f"The handler captures nothing under the name {unused[0]!r}: see capturing(...)."
            raise SpecError(problem)


class ChosenRandom(SeededRandom):
    """A generator whose draws are given one after another, whichever method draws. Each must be a possible one."""

    def __init__(self, draws: Sequence[Any]) -> None:
        super().__init__(Seed("", "", ""))
        self._draws = list(draws)
        self._number = len(draws)

    @property
    def left(self) -> int:
        """How many draws are left."""
        return len(self._draws)

    def random(self) -> Any:  # noqa: ANN401 - what was chosen
        """Draw."""
        return self._draw("random()", lambda value: 0 <= value < 1)

    def getrandbits(self, k: int, /) -> Any:  # noqa: ANN401 - what was chosen
        """Draw."""
        return self._draw(f"getrandbits({k})", lambda value: value in range(1 << k))

    def randbytes(self, n: int) -> Any:  # noqa: ANN401 - what was chosen
        """Draw."""
        return self._draw(f"randbytes({n})", lambda value: isinstance(value, bytes) and len(value) == n)

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> Any:  # noqa: ANN401 - as above
        """Draw."""
        numbers = range(start) if stop is None else range(start, stop, step)
        return self._draw(f"rand{numbers}", lambda value: value in numbers)

    def randint(self, a: int, b: int) -> Any:  # noqa: ANN401 - as above
        """Draw."""
        return self._draw(f"randint({a}, {b})", lambda value: value in range(a, b + 1))

    def uniform(self, a: float, b: float) -> Any:  # noqa: ANN401 - as above
        """Draw."""
        return self._draw(f"uniform({a}, {b})", lambda value: min(a, b) <= value <= max(a, b))

    def choice(self, seq: Any) -> Any:  # noqa: ANN401 - as above
        """Draw."""
        return self._draw(f"choice({seq!r})", lambda value: value in seq)

    def choices(self, population: Any, *_: Any, k: int = 1, **__: Any) -> Any:  # noqa: ANN401 - as above
        """Draw a list."""

        def is_possible(value: Any) -> bool:  # noqa: ANN401 - as above
            return len(value) == k and all(each in population for each in value)

        return list(self._draw(f"choices({population!r}, k={k})", is_possible))

    def sample(self, population: Any, k: int, **_: Any) -> Any:  # noqa: ANN401 - as above
        """Draw a list."""

        def is_possible(value: Any) -> bool:  # noqa: ANN401 - as above
            return len(value) == k and not Counter(value) - Counter(population)

        return list(self._draw(f"sample({population!r}, {k})", is_possible))

    def shuffle(self, x: Any) -> None:  # noqa: ANN401 - a list
        """Draw an order."""
        x[:] = self._draw(f"shuffle({x!r})", lambda value: Counter(value) == Counter(x))

    def gauss(self, mu: float = 0.0, sigma: float = 1.0) -> Any:  # noqa: ANN401 - as above
        """Draw."""
        return self._draw(f"gauss({mu}, {sigma})", _is_number)

    def normalvariate(self, mu: float = 0.0, sigma: float = 1.0) -> Any:  # noqa: ANN401 - as above
        """Draw."""
        return self._draw(f"normalvariate({mu}, {sigma})", _is_number)

    def expovariate(self, lambd: float = 1.0) -> Any:  # noqa: ANN401 - as above
        """Draw."""
        return self._draw(f"expovariate({lambd})", _is_number)

    def _draw(self, call: str, is_possible: Callable[[Any], bool]) -> Any:  # noqa: ANN401 - what was chosen
        if not self._draws:
            problem = (
                f"The handler draws {call} after the {self._number} values that were chosen: drawing(...)."
            )
            raise SpecError(problem)
        value = self._draws.pop(0)
        try:
            possible = is_possible(value)
        except TypeError:
            possible = False
        if not possible:
            problem = f"{call} cannot give {value!r}, which was chosen for it: drawing(...)."
            raise SpecError(problem)
        return value


def _is_number(value: object) -> bool:
    return isinstance(value, float | int)


def as_guids(guids: Iterable[Any]) -> tuple[UUID, ...]:
    """Return chosen guids. Raises `SpecError` for anything else."""
    chosen = tuple(guids)
    for guid in chosen:
        if not isinstance(guid, UUID):
            problem = f"with_guids takes UUIDs, not {guid!r}."
            raise SpecError(problem)
    return chosen
