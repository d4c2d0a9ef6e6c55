"""Facts: what happened for good in an execution, whatever the tables hold now; all states of them have numbers."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import pytest

from runtime.versions import index
from tests.model.contents import Contents, Numbered, Snapshot
from tests.model.histories import Job, Moment


class Done(NamedTuple):
    """A delivery that was acknowledged: its job, and what its run returned."""

    job: str
    result: Any


class Facts(NamedTuple):
    """What was ever committed, in its order, by its place; what was published and what acknowledged, each once.

    A place that was committed with another value than before stands there twice.
    """

    committed: tuple[tuple[Hashable, Any], ...] = ()
    published: tuple[Any, ...] = ()
    done: tuple[Done, ...] = ()


@dataclass(frozen=True, slots=True)
class View:
    """What an invariant sees: the facts, what the tables hold now, and whether nothing is under way any more."""

    facts: Facts
    snapshot: Snapshot
    held: Mapping[Hashable, Any]
    is_quiescent: bool


@dataclass(frozen=True, slots=True)
class Invariant:
    """Something that must hold after every step. `broken` says what is wrong, None when nothing is."""

    name: str
    broken: Callable[[View], str | None]


Held = Mapping[Hashable, Any]
Limit = tuple[Any, str, object]
"""A constant of a module of the shipped code, by its name, and its value in a scenario."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """What is explored: jobs whose steps are interleaved, after `earlier` jobs, and what must hold.

    `committed` returns what the tables hold, by place: from now on, other parts of the system may rely on it. `limits`
    are lower than in the shipped code, so that few rows reach them.
    """

    name: str
    jobs: Sequence[Job]
    invariants: Sequence[Invariant]
    committed: Callable[[Snapshot], Held]
    earlier: Sequence[Job] = ()
    limits: Sequence[Limit] = ()

    def patch(self, patch: pytest.MonkeyPatch) -> None:
        """Set the limits, and the key of each index: a run that is repeated draws the same."""
        patch.setattr(index, "new_key", lambda: bytes(index.KEY_BYTES))
        for module, name, value in self.limits:
            patch.setattr(module, name, value)


def count_of(copies: int) -> str:
    return f"{copies} cop{'ies' if copies > 1 else 'y'}"


class Chronicle:
    """Facts, each state of them under a number. An entry is facts by the numbers of their items.

    What was committed is in its order, the rest sorted.
    """

    def __init__(self, scenario: Scenario, contents: Contents) -> None:
        self._scenario = scenario
        self._contents = contents
        self._entries: list[Any] = []
        self._numbers: dict[Any, int] = {}
        self._items: Numbered[Any] = Numbered()
        self.held = cache(self._read)
        self._commits = cache(self._numbered)
        self._ends: dict[int, int] = {}
        self._output = cache(lambda call: self._items.number(contents.calls[call].arguments[0]))

    def __getitem__(self, number: int) -> Facts:
        return Facts(*[tuple([self._items[item] for item in items]) for items in self._entries[number]])

    def begin(self, snapshot: int) -> int:
        """Return the number of the facts before anything happened."""
        return self.committed(self._number(Facts()), snapshot)

    def _read(self, snapshot: int) -> Held | str:
        """Return what a snapshot holds, or why it cannot be read."""
        try:
            return self._scenario.committed(self._contents.snapshots[snapshot])
        except Exception as error:  # noqa: BLE001 - whatever reading raises, what is stored is broken
            return repr(error)

    def _numbered(self, snapshot: int) -> tuple[int, ...]:
        held = self.held(snapshot)
        items = () if isinstance(held, str) else held.items()
        return tuple([self._items.number(item) for item in items])

    def committed(self, facts: int, snapshot: int) -> int:
        entry = self._entries[facts]
        new = [item for item in self._commits(snapshot) if item not in entry.committed]
        return self._number(entry._replace(committed=(*entry.committed, *new))) if new else facts

    def forgotten(self, facts: int, kept: int) -> int:
        """Return the facts when of what was committed only that is left which other facts have."""
        return self._number(self._entries[facts]._replace(committed=self._entries[kept].committed))

    def published(self, facts: int, call: int) -> int:
        return self._with(facts, "published", self._output(call))

    def done(self, facts: int, number: int, job: str, moment: Moment) -> int:
        item = self._ends.get(number)
        if item is None:
            item = self._ends[number] = self._items.number(Done(job, moment.result))
        return self._with(facts, "done", item)

    def _with(self, facts: int, name: str, item: int) -> int:
        items = getattr(self._entries[facts], name)
        if item in items:
            return facts
        return self._number(self._entries[facts]._replace(**{name: tuple(sorted([*items, item]))}))

    def _number(self, entry: Any) -> int:
        number = self._numbers.setdefault(entry, len(self._entries))
        if number == len(self._entries):
            self._entries.append(entry)
        return number
