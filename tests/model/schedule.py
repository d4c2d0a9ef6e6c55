"""Schedules: what happened, in which order, as a table to read and as a seed to replay.

A seed is a line of words: `+x` delivers the job x, `2` lets run 2 take its next step, `2!` kills it, `2?` loses its
call, `2~` its answer, `2&` delays its call beyond the time-out, `*0` lets the first of the delayed calls land, and
`%` cuts the power.
"""

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pytest

from runtime.messages.outcome import Output
from tests.model.calls import OUTSIDE, Call
from tests.model.engine import Engine
from tests.model.facts import Scenario
from tests.model.histories import DONE
from tests.model.world import Action, Bounds, Kind, Report, Violation, World

_WORD = re.compile(r"(?P<deliver>\+)(?P<job>.+)|\*(?P<land>\d+)|(?P<run>\d+)(?P<kind>[!?~&]?)|(?P<cut>%)")
_WENT_WRONG = {
    Kind.CRASH: "dies before",
    Kind.LOSE_CALL: "times out without effect:",
    Kind.LOSE_ANSWER: "times out although it took effect:",
    Kind.DELAY: "times out and takes effect later:",
}
UNBOUNDED = Bounds(workers=99, crashes=99, losses=99, cuts=1)


class Line(NamedTuple):
    """One step of a schedule: who did what, what the answer was, and what is committed or published by it."""

    who: str
    what: str
    answer: str
    effect: str


class Replayed(NamedTuple):
    """A schedule that was carried out, and what was broken by it."""

    lines: Sequence[Line]
    problem: str | None


def seed(scenario: Scenario, schedule: Sequence[Action]) -> str:
    jobs = (*scenario.earlier, *scenario.jobs)
    return " ".join(
        _word(action, jobs[action.subject].name if action.kind is Kind.DELIVER else "") for action in schedule
    )


def replay(scenario: Scenario, words: str) -> Replayed:
    """Carry out the schedule of a seed with the code as it is now, up to the first violation.

    Ends early where the code takes another way than when the seed was written, so that a step cannot be taken.
    """
    with pytest.MonkeyPatch.context() as patch:
        scenario.patch(patch)
        engine = Engine(scenario, UNBOUNDED)
        world = engine.first()
        lines: list[Line] = []
        problem = engine.broken(world)
        for word in words.split():
            if problem is not None:
                break
            action = _action(engine, word)
            if action not in engine.actions(world):
                break
            reached = engine.take(world, action)
            lines.append(_line(engine, world, action, reached))
            world, problem = reached, engine.broken(reached)
    return Replayed(lines, problem)


def table(replayed: Replayed) -> str:
    numbered = [(str(number), *line) for number, line in enumerate(replayed.lines, 1)]
    rows = [("", *Line("who", "what", "answer", "committed, published")), *numbered]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    written = [
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    return "\n".join([*written, "", replayed.problem or "Nothing is broken."])


def _word(action: Action, job: str) -> str:
    if action.kind is Kind.DELIVER:
        return f"+{job}"
    if action.kind is Kind.LAND:
        return f"*{action.subject}"
    if action.kind is Kind.CUT:
        return "%"
    return f"{action.subject}{action.kind.value}"


def _action(engine: Engine, word: str) -> Action:
    match = _WORD.fullmatch(word)
    if match is None:
        message = f"{word!r} is no word of a schedule."
        raise ValueError(message)
    if match["deliver"]:
        names = [job.name for job in engine.jobs]
        if match["job"] not in names:
            message = (
                f"There is no job {match['job']!r} in {engine.scenario.name}; there are {', '.join(names)}."
            )
            raise ValueError(message)
        return Action(Kind.DELIVER, len(names) - 1 - names[::-1].index(match["job"]))
    if match["cut"]:
        return Action(Kind.CUT, 0)
    if match["land"]:
        return Action(Kind.LAND, int(match["land"]))
    return Action(Kind(match["kind"]), int(match["run"]))


def _line(engine: Engine, world: World, action: Action, reached: World) -> Line:
    effect = _effect(engine, world, reached)
    if action.kind is Kind.DELIVER:
        return Line(f"{world.started} ({engine.jobs[action.subject].name})", "is delivered", "", effect)
    if action.kind is Kind.CUT:
        return Line("", "the power is cut", "", effect)
    if action.kind is Kind.LAND:
        return Line("", f"lands: {shown(engine.contents.calls[world.late[action.subject]])}", "", effect)
    number = engine.at(world, action.subject)
    moment = engine.histories[number]
    who = f"{moment.run} ({engine.jobs[moment.job].name})"
    what, answer = "acknowledges", ""
    if moment.call != DONE:
        what = shown(engine.contents.calls[moment.call])
        answer = _answer(engine, world, number, reached) if action.kind is Kind.STEP else ""
    elif moment.error is not None:
        what = f"fails: {moment.error}"
    if action.kind in _WENT_WRONG:
        what = f"{_WENT_WRONG[action.kind]} {what.replace('acknowledges', 'it acknowledges')}"
    return Line(who, what, answer, effect)


def _answer(engine: Engine, world: World, number: int, reached: World) -> str:
    (following,) = set(reached.runs) - (set(world.runs) - {number})
    value, error = engine.contents.answers[engine.histories[following].answer]
    if error is not None:
        return type(error).__name__
    rows = getattr(value, "rows", None)
    return f"{len(rows)} row{'s' * (len(rows) != 1)}" if rows is not None else "done"


def _effect(engine: Engine, world: World, reached: World) -> str:
    before, after = engine.chronicle[world.facts], engine.chronicle[reached.facts]
    committed = [
        f"{'/'.join(map(str, place)) if isinstance(place, tuple) else place} {value}"
        for place, value in after.committed[len(before.committed) :]
    ]
    published = [_named(output) for output in after.published if output not in before.published]
    return ", ".join(committed + published)


def _named(output: object) -> str:
    return f"{output.type} {output.message_id[:8]}" if isinstance(output, Output) else repr(output)


def shown(call: Call) -> str:
    if call.target == OUTSIDE:
        (output,) = call.arguments
        return f"{call.name} {_named(output)}"
    if call.name == "transact":
        key, operations = call.arguments
        return f"transact {key}: " + ", ".join(f"{each.verb.value} {each.row_key}" for each in operations)
    return " ".join([call.name, *[str(each) for each in call.arguments[:3] if isinstance(each, str)]])


_ACCIDENT = 0.06
"""How likely something goes wrong at a step, where it may."""


def sample(scenario: Scenario, bounds: Bounds, schedules: int) -> Report:
    with pytest.MonkeyPatch.context() as patch:
        scenario.patch(patch)
        engine = Engine(scenario, bounds)
        first, seen, report = engine.first(), set[World](), Report(scenario.name, bounds)
        for number in range(schedules):
            path = walk(engine, first, random.Random(number))
            report.executions += 1
            report.steps.update(action.kind for action in path.actions)
            seen.update(path.worlds)
            if path.problem is not None:
                report.violation = Violation(path.problem, tuple(path.actions))
                break
    report.worlds = len(seen)
    return report


@dataclass(frozen=True, slots=True)
class Path:
    """One random schedule: its actions, the worlds that it came through, and what it broke."""

    actions: Sequence[Action]
    worlds: Sequence[World]
    problem: str | None


def walk(engine: Engine, world: World, chance: random.Random) -> Path:
    actions: list[Action] = []
    worlds = [world]
    problem = engine.broken(world)
    while problem is None:
        action = _choose(list(engine.actions(world)), chance)
        if action is None:
            break
        world = engine.take(world, action)
        problem = engine.broken(world)
        actions.append(action)
        worlds.append(world)
    return Path(actions, worlds, problem)


def _choose(actions: Sequence[Action], chance: random.Random) -> Action | None:
    """Choose an accident now and then, else one of the things that go well; None when nothing can happen."""
    good = [action for action in actions if action.kind in (Kind.DELIVER, Kind.STEP, Kind.LAND)]
    bad = [action for action in actions if action not in good]
    if bad and (not good or chance.random() < _ACCIDENT):
        return chance.choice(bad)
    return chance.choice(good) if good else None
