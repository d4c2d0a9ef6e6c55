"""Invocation: handles a message as the runtime does, in memory, with states and messages decoded from bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

from handlers.app import HandlerDefinition
from handlers.context import Context, Published, message_codec
from handlers.draws import Seed, SeededRandom
from handlers.errors import CodecError, InputStateChangedError, SpecError
from handlers.message import Message, message_name

FAILURES = (Exception, SystemExit)
"""What a handler may raise without ending the process; in a batch its message becomes a dead letter."""


class Handling(NamedTuple):
    """The result of one call of a handler: the encoded next state, the outputs and the captured values."""

    after: bytes
    published: tuple[Published, ...]
    captured: Mapping[str, bytes]


def handle(handler: HandlerDefinition, before: bytes, message: Message, context: Context) -> Handling:
    """Call the newest method for a message on an encoded state.

    Raises what the handler raises, `CodecError` for a result that is no valid state, and `InputStateChangedError` when
    the handler mutated its input state.
    """
    codec, route = handler.codec, handler.routes[message_name(type(message))]
    state, seen = codec.reread(before), round_trip(message)
    method = route.revisions[route.newest]
    returned = method(state, seen, context)
    if returned is None:
        raise CodecError(
            f"{method.__qualname__} returned None: return the next state, or the input state unchanged."
        )
    after = codec.encode(returned)
    if codec.encode(state) != before:
        raise InputStateChangedError(
            f"{handler.name} mutated its input state: return a changed copy, state.model_copy(update=...)."
        )
    after = before if after == before else codec.canonical(after)[1]
    return Handling(after, tuple(context.published), dict(context.captured))


def round_trip(message: Message) -> Message:
    """Return a message encoded and decoded, as one read from a log. Raises `CodecError`."""
    codec = message_codec(type(message))
    return codec.reread(codec.encode(message))


# Stubs: the random numbers, guids and captured values that a test chooses for a handler.


@dataclass(frozen=True, slots=True)
class Stubs:
    """The stubs for one message; None for draws or guids that are derived from the message."""

    draws: tuple[Any, ...] | None = None
    guids: tuple[UUID, ...] | None = None
    captured: Mapping[str, Any] = field(default_factory=dict)


class StubbedContext(Context):
    """A context that returns the stubs, and keeps the published messages."""

    __slots__ = ("_stubbed_random", "_stubs", "_taken_guids", "messages")

    def __init__(self, stubs: Stubs, *given: Any, **named: Any) -> None:  # noqa: ANN401 - a context's
        super().__init__(*given, **named)
        self._stubs = stubs
        self._taken_guids = 0
        self._stubbed_random = None if stubs.draws is None else StubbedRandom(stubs.draws)
        self.messages: list[Message] = []

    @property
    def random(self) -> Any:  # noqa: ANN401 - a generator
        """The stubbed generator, or the one seeded by the message."""
        return super().random if self._stubbed_random is None else self._stubbed_random

    def new_guid(self) -> UUID:
        """Return the next stub, or the next guid derived from the message."""
        guids = self._stubs.guids
        if guids is None:
            return super().new_guid()
        if self._taken_guids == len(guids):
            raise SpecError(
                f"The handler takes more than the {len(guids)} guids of with_guids(...): add one for each call."
            )
        self._taken_guids += 1
        return guids[self._taken_guids - 1]

    def capture(self, name: str, function: Callable[[], Any]) -> Any:  # noqa: ANN401 - plain data of any kind
        """Capture the stub, or the result of the function."""
        stubs = self._stubs.captured
        return super().capture(name, (lambda: stubs[name]) if name in stubs else function)

    def publish(self, message: Message, *, headers: Mapping[str, str] | None = None) -> None:
        """Publish a message and keep it."""
        super().publish(message, headers=headers)
        self.messages.append(round_trip(message))

    def check_all_taken(self) -> None:
        """Raise `SpecError` when a stub was not used."""
        left = self._stubbed_random.left if self._stubbed_random else 0
        if left:
            raise SpecError(f"The handler does not draw the last {left} values of drawing(...): remove them.")
        left = len(self._stubs.guids or ()) - self._taken_guids
        if left:
            raise SpecError(
                f"The handler does not take the last {left} guids of with_guids(...): remove them."
            )
        unused = sorted(set(self._stubs.captured) - set(self.captured))
        if unused:
            raise SpecError(f"The handler captures nothing as {unused[0]!r}: remove it from capturing(...).")


class StubbedRandom(SeededRandom):
    """A generator that returns the stubs one by one, whichever method draws; each must be possible for its method."""

    def __init__(self, draws: Sequence[Any]) -> None:
        super().__init__(Seed("", "", ""))
        self._draws = list(draws)
        self._number = len(draws)

    @property
    def left(self) -> int:
        """How many draws are unused."""
        return len(self._draws)

    def _draw(self, call: str, is_valid: Callable[[Any], bool]) -> Any:  # noqa: ANN401 - a stub
        if not self._draws:
            raise SpecError(
                f"The handler calls {call} after all {self._number} values of drawing(...): add one for it."
            )
        value = self._draws.pop(0)
        try:
            possible = is_valid(value)
        except TypeError:
            possible = False
        if not possible:
            raise SpecError(f"{call} cannot return {value!r}: change that value of drawing(...).")
        return value


def _is_number(value: Any, *_: Any) -> bool:  # noqa: ANN401 - a stub
    return isinstance(value, float | int)


def _are_among(values: Any, population: Any, *, k: int = 1, **_: Any) -> bool:  # noqa: ANN401 - a stub
    return len(values) == k and all(value in population for value in values)


def _is_sample(values: Any, population: Any, k: int, **_: Any) -> bool:  # noqa: ANN401 - a stub
    return len(values) == k and not Counter(values) - Counter(population)


_POSSIBLE: Mapping[str, Callable[..., bool]] = {
    "random": lambda value: 0 <= value < 1,
    "getrandbits": lambda value, k: value in range(1 << k),
    "randbytes": lambda value, n: isinstance(value, bytes) and len(value) == n,
    "randrange": lambda value, start, stop=None, step=1: (
        value in (range(start) if stop is None else range(start, stop, step))
    ),
    "randint": lambda value, a, b: value in range(a, b + 1),
    "uniform": lambda value, a, b: min(a, b) <= value <= max(a, b),
    "choice": lambda value, seq: value in seq,
    "choices": _are_among,
    "sample": _is_sample,
    "shuffle": lambda value, x: Counter(value) == Counter(x),
    "gauss": _is_number,
    "normalvariate": _is_number,
    "expovariate": _is_number,
}
"""By method, whether it can return a value for its arguments."""


def _stubbed(name: str, is_possible: Callable[..., bool]) -> Callable[..., Any]:
    def draw(self: StubbedRandom, *given: Any, **named: Any) -> Any:  # noqa: ANN401 - the method's own
        told = [*map(repr, given), *(f"{key}={value!r}" for key, value in named.items())]
        call = f"{name}({', '.join(told)})"
        value = self._draw(call, lambda drawn: is_possible(drawn, *given, **named))
        if name == "shuffle":
            (shuffled,) = (*given, *named.values())
            shuffled[:] = value
            return None
        return list(value) if name in ("choices", "sample") else value

    return draw


for _name, _is_possible in _POSSIBLE.items():
    setattr(StubbedRandom, _name, _stubbed(_name, _is_possible))


def as_guids(guids: Iterable[Any]) -> tuple[UUID, ...]:
    """Return the guids as a tuple. Raises `SpecError` for anything else."""
    stubs = tuple(guids)
    for guid in stubs:
        if not isinstance(guid, UUID):
            raise SpecError(f"with_guids takes UUIDs, not {guid!r}.")
    return stubs
