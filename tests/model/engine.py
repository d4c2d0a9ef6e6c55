"""The engine: carries out what happens in a world, with the shipped code, and judges what comes of it."""

from collections.abc import Hashable, Iterator
from functools import cache
from typing import NamedTuple

from eventstore import StoreUnavailableError
from tests.model.calls import OUTSIDE
from tests.model.contents import Answer, Contents, Snapshot
from tests.model.facts import Chronicle, View
from tests.model.histories import DONE, Histories
from tests.model.world import NOT_KEPT, Action, Kind, Report, World

LOST = StoreUnavailableError("The answer did not come.", outcome_unknown=True)


class Engine:
    def __init__(self, scenario, bounds, contents=None, states=None) -> None:
        self.scenario = scenario
        self.bounds = bounds
        self.contents = contents or Contents()
        self.jobs = (*scenario.earlier, *scenario.jobs)
        self.histories = Histories(self.jobs, self.contents, states)
        self.chronicle = Chronicle(scenario, self.contents)
        self._lost = self.contents.answers.number(Answer(error=LOST))
        self._nothing = self.contents.answers.number(Answer())
        self._judge = cache(self._verdict)

    def first(self) -> World:
        """Return the world in which the earlier jobs are done, one after the other, and all others wait."""
        blank = self.contents.snapshots.number(Snapshot())
        world = World(blank, self.chronicle.begin(blank), (), (), (), 0, 0, 0)
        earlier = len(self.scenario.earlier)
        for job in range(earlier):
            world = self.take(world._replace(queue=(job,)), Action(Kind.DELIVER, job))
            while world.runs:
                world = self.take(world, Action(Kind.STEP, world.started - 1))
        queue = [earlier + number for number, job in enumerate(self.scenario.jobs) for _ in range(job.copies)]
        bounds = self.bounds
        begun = world._replace(
            queue=tuple(queue), crashes=bounds.crashes, losses=bounds.losses, cuts=bounds.cuts
        )
        return self._kept(begun)

    def actions(self, world: World) -> Iterator[Action]:
        """Give what can happen next. Things that go wrong come last."""
        if len(world.runs) < self.bounds.workers:
            for job in sorted(set(world.queue)):
                yield Action(Kind.DELIVER, job)
        moments = self.histories.moments
        for number in world.runs:
            yield Action(Kind.STEP, moments[number].run)
        for position in range(len(world.late)):
            yield Action(Kind.LAND, position)
        for number in world.runs:
            yield from self._accidents(world, number)
        if world.cuts:
            yield Action(Kind.CUT, 0)

    def _accidents(self, world: World, number: int) -> Iterator[Action]:
        moment = self.histories.moments[number]
        if world.crashes:
            yield Action(Kind.CRASH, moment.run)
        if not world.losses or moment.call == DONE:
            return
        yield Action(Kind.LOSE_CALL, moment.run)
        if self.contents.calls[moment.call].changes:
            yield Action(Kind.LOSE_ANSWER, moment.run)
            if self.bounds.late_writes:
                yield Action(Kind.DELAY, moment.run)

    def take(self, world: World, action: Action) -> World:
        kind, subject = action
        if kind is Kind.DELIVER:
            moment = self.histories.start(world.started, subject)
            queue = _without(world.queue, subject)
            return world._replace(queue=queue, runs=_with(world.runs, moment), started=world.started + 1)
        if kind is Kind.LAND:
            late = list(world.late)
            snapshot, facts, _ = self._perform(world, late.pop(subject))
            return world._replace(snapshot=snapshot, facts=facts, late=tuple(late))
        if kind is Kind.CUT:
            return self._cut(world)
        number = self.at(world, subject)
        if kind is Kind.STEP:
            return self._step(world, number)
        if kind is Kind.CRASH:
            return self._returned(world, number)._replace(crashes=world.crashes - 1)
        return self._lose(world, number, kind)

    def at(self, world: World, run: int) -> int:
        return next(number for number in world.runs if self.histories.moments[number].run == run)

    def _step(self, world: World, number: int) -> World:
        moment = self.histories.moments[number]
        if moment.call == DONE:
            if moment.error is not None:
                return self._returned(world, number)
            facts = self.chronicle.done(world.facts, number, self.jobs[moment.job].name, moment)
            return world._replace(facts=facts, runs=_without(world.runs, number))
        snapshot, facts, answer = self._perform(world, moment.call)
        runs = self._moved(world.runs, number, self.histories.answer(number, answer))
        stepped = world._replace(snapshot=snapshot, facts=facts, runs=runs)
        return self._kept(stepped) if self.contents.calls[moment.call].makes_durable else stepped

    def _lose(self, world: World, number: int, kind: Kind) -> World:
        call = self.histories.moments[number].call
        snapshot, facts, late = world.snapshot, world.facts, world.late
        if kind is Kind.LOSE_ANSWER:
            snapshot, facts, _ = self._perform(world, call)
        elif kind is Kind.DELAY:
            late = (*late, call)
        runs = self._moved(world.runs, number, self.histories.answer(number, self._lost))
        return world._replace(snapshot=snapshot, facts=facts, runs=runs, late=late, losses=world.losses - 1)

    def _kept(self, world: World) -> World:
        """Return the world after a barrier: what is committed now survives a power cut."""
        return world._replace(durable=(world.snapshot, world.facts)) if world.cuts else world

    def _cut(self, world: World) -> World:
        """Return the world after a power cut: nobody runs, and what no barrier came after is forgotten."""
        snapshot, facts = world.durable
        queue = [*world.queue, *[self.histories.moments[number].job for number in world.runs]]
        survived = world._replace(
            snapshot=snapshot,
            facts=self.chronicle.forgotten(world.facts, facts),
            queue=tuple(sorted(queue)),
            runs=(),
            late=(),
            cuts=world.cuts - 1,
        )
        return survived if survived.cuts else survived._replace(durable=NOT_KEPT)

    def _returned(self, world: World, number: int) -> World:
        """Return the world in which a run is gone, and its delivery waits again."""
        queue = _with(world.queue, self.histories.moments[number].job)
        return world._replace(queue=queue, runs=_without(world.runs, number))

    def _moved(self, runs: tuple[int, ...], number: int, following: int) -> tuple[int, ...]:
        return tuple(sorted([following if each == number else each for each in runs]))

    def _perform(self, world: World, call: int) -> tuple[int, int, int]:
        if self.contents.calls[call].target == OUTSIDE:
            return world.snapshot, self.chronicle.published(world.facts, call), self._nothing
        snapshot, answer = self.contents.perform(world.snapshot, call)
        if snapshot == world.snapshot:
            return snapshot, world.facts, answer
        return snapshot, self.chronicle.committed(world.facts, snapshot), answer

    def broken(self, world: World) -> str | None:
        """Say what is wrong with a world: which invariant is broken, and how. None when nothing is."""
        for number in world.runs:
            moment = self.histories.moments[number]
            if moment.error is not None and not isinstance(moment.error, StoreUnavailableError):
                return f"NoError: {self.jobs[moment.job].name} failed with {moment.error!r}"
        return self._judge(world.snapshot, world.facts, world.is_quiescent)

    def _verdict(self, snapshot: int, facts: int, is_quiescent: bool) -> str | None:
        held = self.chronicle.held(snapshot)
        if isinstance(held, str):
            return f"Readable: {held}"
        view = View(self.chronicle[facts], self.contents.snapshots[snapshot], held, is_quiescent)
        for invariant in self.scenario.invariants:
            problem = invariant.broken(view)
            if problem is not None:
                return f"{invariant.name}: {problem}"
        return None


def _with(numbers: tuple[int, ...], number: int) -> tuple[int, ...]:
    return tuple(sorted([*numbers, number]))


def _without(numbers: tuple[int, ...], number: int) -> tuple[int, ...]:
    at = numbers.index(number)
    return numbers[:at] + numbers[at + 1 :]


class Step(NamedTuple):
    """Actions that lead from one world to the next that is kept, one action as a rule."""

    actions: tuple[Action, ...]
    world: World


class Ways:
    """All ways. `reduced` says in a word or two that it is less, and how much."""

    def __init__(self, engine: Engine, reduced: str = "") -> None:
        self.engine = engine
        self.reduced = reduced

    def key(self, world: World) -> Hashable:
        return world

    def steps(self, world: World, report: Report) -> Iterator[Step]:
        for action in self.engine.actions(world):
            yield Step((action,), self.taken(world, action, report))

    def taken(self, world: World, action: Action, report: Report) -> World:
        report.steps[action.kind] += 1
        if action.kind is Kind.CRASH:
            report.crash_points.add(self.engine.histories[self.engine.at(world, action.subject)].sites)
        return self.engine.take(world, action)
