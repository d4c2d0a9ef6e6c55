"""One who forgets an object is overtaken by another at some call, and dies some calls later."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import TypeVar

from tests.unit.runtime.accidents import CrashError

T = TypeVar("T")


@dataclass
class Step:
    """Is called at each call of the one who is overtaken."""

    calls: int
    later: int
    meanwhile: Callable[[], None]
    is_reached: bool = False

    def __call__(self, *_: object) -> None:
        if self.calls == 0:
            self.is_reached = True
            self.meanwhile()
        elif self.calls == -self.later:
            raise CrashError
        self.calls -= 1


def overtaken(
    later: int, new: Callable[[], T], forget: Callable[[T, Step], None], meanwhile: Callable[[T], None]
) -> Iterator[tuple[T, bool]]:
    """Yield worlds in which that happened at the first call, at the second, and so on, and at last at none."""
    for number in count():
        world = new()
        step = Step(number, later, partial(meanwhile, world))
        with suppress(CrashError):
            forget(world, step)
        yield world, step.is_reached
        if not step.is_reached:
            assert number > 8
            return
