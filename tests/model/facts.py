"""Facts: what happened for good in an execution, whatever the tables hold now."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import pytest

from tests.model.contents import Snapshot
from tests.model.histories import Job


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


class Scenario(Protocol):
    """What is explored: jobs whose steps are interleaved, after `earlier` ones that are done, and what must hold.

    `patch` sets limits of the shipped code lower, so that few rows reach them.
    """

    @property
    def name(self) -> str: ...
    @property
    def earlier(self) -> Sequence[Job]: ...
    @property
    def jobs(self) -> Sequence[Job]: ...
    @property
    def invariants(self) -> Sequence[Invariant]: ...

    def patch(self, patch: pytest.MonkeyPatch) -> None: ...

    def committed(self, snapshot: Snapshot) -> Mapping[Hashable, Any]:
        """Return what the tables hold, by its place: what other parts of the system may rely on from now on."""
