"""Histories: what a run was answered so far decides what it asks next.

A run is one execution of a job's coroutine, for one delivery. The shipped code is driven by hand: it is
sent an answer and gives its next call. What it does depends on nothing but its answers, so it is run once for each
history, whatever the others did meanwhile; that it does not is found out when a history is run again.

Coroutines cannot be copied: one that was driven past a point is run anew from the start to get back there.
None is closed before the exploration ends, because closing runs `finally`, which a killed process does not.
"""

from collections.abc import Callable, Coroutine, Hashable
from dataclasses import dataclass, field
from functools import cache
from gc import get_referents
from types import AsyncGeneratorType, CoroutineType
from typing import Any, NamedTuple, Protocol

from tests.model.contents import Answer
from tests.model.processes import Dependencies, Process
from tests.model.shapes import NO_SHAPE, Shape
from tests.support.campaigns import ROOT

Started = Coroutine[Any, Any, object]
Site = tuple[str, int]
"""A place in the source: file and line."""

DONE = -1


class Job(NamedTuple):
    """Work that is delivered so many times: a message to handle, or a task to do. Its result says how it ended."""

    name: str
    start: Callable[[Process], Started]
    copies: int = 1


class NotDeterministicError(Exception):
    """Raised when code was given the same answers twice and asked for different things."""


@dataclass(slots=True)
class Moment:
    """A point in a run: where it waits for an answer to `call`, or is `DONE`, with a result or an error.

    `shape` and `has_acted`, whether the call before it may have changed something, are known where states are given.
    """

    run: int
    job: int
    parent: int
    answer: int
    call: int = DONE
    result: object = None
    error: Exception | None = None
    sites: tuple[Site, ...] = ()
    shape: Shape = NO_SHAPE
    has_acted: bool = True
    following: dict[int, int] = field(default_factory=dict)
    coroutine: tuple[Started, Process] | None = None


class States(Protocol):
    """Says which moments are one."""

    def of(self, moment: Moment, before: Moment | None) -> Hashable:
        """Return what the moments have in common that go on alike, and note what else is known of this one."""


class Histories:
    """All moments of all runs, under numbers; each reached by an answer from the one before it."""

    def __init__(self, jobs, contents, states=None) -> None:
        self.moments: list[Moment] = []
        self.executed = 0
        self.merged: list[tuple[Moment, int]] = []
        self._states = states
        self._by_state: dict[Hashable, int] = {}
        self._jobs = jobs
        self._contents = contents
        self.start = cache(self._start)
        self._used: list[Started] = []

    def __getitem__(self, number: int) -> Moment:
        return self.moments[number]

    def _start(self, run: int, job: int) -> int:
        """Return the first moment of a run, which is the `run`th delivery of this exploration."""
        return self._add(Moment(run, job, -1, -1), self._begin(run, job))

    def answer(self, number: int, answer: int) -> int:
        moment = self.moments[number]
        following = moment.following.get(answer)
        if following is None:
            coroutine = self.suspended(number)
            moment.coroutine = None
            reached = Moment(moment.run, moment.job, number, answer)
            following = moment.following[answer] = self._add(reached, coroutine)
        return following

    def suspended(self, number: int) -> tuple[Started, Process]:
        moment = self.moments[number]
        if moment.coroutine is None:
            moment.coroutine = self._again(number)
        return moment.coroutine

    def _begin(self, run: int, job: int) -> tuple[Started, Process]:
        process = Process(run)
        self.executed += 1
        return self._jobs[job].start(process), process

    def _add(self, moment: Moment, coroutine: tuple[Started, Process]) -> int:
        self._advance(moment, coroutine)
        if self._states is not None:
            before = self.moments[moment.parent] if moment.parent >= 0 else None
            known = self._by_state.setdefault(self._states.of(moment, before), len(self.moments))
            if known < len(self.moments):
                self.merged.append((moment, known))
                return known
        self.moments.append(moment)
        return len(self.moments) - 1

    def _advance(self, moment: Moment, coroutine: tuple[Started, Process]) -> None:
        """Send a coroutine the answer that leads to this moment, and note what it asks then."""
        started, Dependencies.process = coroutine
        answer = self._contents.answers[moment.answer] if moment.answer >= 0 else Answer()
        try:
            call = started.send(answer.value) if answer.error is None else started.throw(_copy(answer.error))
        except StopIteration as done:
            moment.result = done.value
        except Exception as error:  # noqa: BLE001 - whatever ends a run is told by its invariants
            moment.error = error
        else:
            moment.call = self._contents.calls.number(call)
            moment.sites = _sites(started)
            moment.coroutine = coroutine
            return
        self._used.append(started)

    def _again(self, number: int) -> tuple[Started, Process]:
        """Run a coroutine from the start to a moment that it was driven past."""
        moments = self._path(self.moments[number])
        coroutine = self._begin(moments[0].run, moments[0].job)
        for moment in moments:
            repeated = Moment(moment.run, moment.job, moment.parent, moment.answer)
            self._advance(repeated, coroutine)
            if repeated.call != moment.call:
                raise NotDeterministicError(self._difference(moment, repeated))
        return coroutine

    def another_way(self, merged: Moment, answer: int) -> Moment:
        """Drive a coroutine on from a moment that was taken for another, to see that it goes on alike."""
        coroutine = self._begin(merged.run, merged.job)
        for moment in [*self._path(merged), Moment(merged.run, merged.job, merged.parent, answer)]:
            reached = Moment(moment.run, moment.job, moment.parent, moment.answer)
            self._advance(reached, coroutine)
        if self._states is not None:
            self._states.of(reached, merged)
        return reached

    def _path(self, last: Moment) -> list[Moment]:
        """Return the moments from the start to one, this one included."""
        path = [last]
        while path[-1].parent >= 0:
            path.append(self.moments[path[-1].parent])
        return path[::-1]

    def _difference(self, moment: Moment, repeated: Moment) -> str:
        first, then = (
            "to return" if each.call == DONE else repr(self._contents.calls[each.call])
            for each in (moment, repeated)
        )
        return f"{self._jobs[moment.job].name} asked, with the same answers, first for {first} and then for {then}."


def _copy(error: Exception) -> Exception:
    """Return the error anew: one that is raised twice would hold on to both tracebacks."""
    return type(error)(*error.args)


def _sites(coroutine: Any) -> tuple[Site, ...]:
    """Return where a suspended coroutine stands, from the outermost call to the innermost."""
    sites = []
    while coroutine is not None:
        if isinstance(coroutine, CoroutineType) and coroutine.cr_frame is not None:
            sites.append((coroutine.cr_code.co_filename, coroutine.cr_frame.f_lineno))
            coroutine = coroutine.cr_await
        elif isinstance(coroutine, AsyncGeneratorType) and coroutine.ag_frame is not None:
            sites.append((coroutine.ag_code.co_filename, coroutine.ag_frame.f_lineno))
            coroutine = coroutine.ag_await
        elif type(coroutine).__name__ == "async_generator_asend":
            coroutine = next(
                each for each in get_referents(coroutine) if isinstance(each, AsyncGeneratorType)
            )
        else:
            break
    return tuple(sites)


def shipped(sites: tuple[Site, ...]) -> tuple[Site, ...]:
    """Return those places of a suspended coroutine that are in shipped code, by paths from the root."""
    return tuple(
        (path.removeprefix(f"{ROOT}/"), line)
        for path, line in sites
        if path.startswith(f"{ROOT}/") and not path.startswith(f"{ROOT}/tests/")
    )
