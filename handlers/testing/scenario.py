"""Scenarios: messages for one business object, run through its handler, with the result of each.

`main` is the program of the other process: it runs scenarios in reverse order, delivers each message twice, and
returns the results.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from handlers.app import App, HandlerDefinition
from handlers.context import Context, Published, message_codec
from handlers.errors import NondeterminismError
from handlers.message import Message
from handlers.testing.invocation import FAILURES, handle

_NOW = 1_767_225_600_000_000
_SECOND = 1_000_000


class Scenario(NamedTuple):
    """Messages for one business object, each with the name of its type and its JSON body."""

    handler: str
    business_id: str
    messages: tuple[tuple[str, str], ...]


class Result(NamedTuple):
    """The result of a message: the error that was raised, or outputs, encoded next state and captured values."""

    error: str | None
    violation: str | None
    outputs: tuple[Published, ...]
    state: bytes
    captured: Mapping[str, bytes]


def run(app: App, scenarios: Sequence[Scenario]) -> list[list[Result]]:
    """Run scenarios one after another, and return the results of each."""
    return [
        [first for first, _ in _run_one(app, number, scenario, None)]
        for number, scenario in enumerate(scenarios)
    ]


def rerun(
    app: App, scenarios: Sequence[Scenario], earlier: Sequence[Sequence[Result]]
) -> list[list[tuple[Result, Result]]]:
    """Run scenarios from last to first with the values captured earlier, and deliver each message twice."""
    numbers = range(len(scenarios))
    results = {
        number: _run_one(app, number, scenarios[number], earlier[number]) for number in reversed(numbers)
    }
    return [results[number] for number in numbers]


def _run_one(
    app: App, number: int, scenario: Scenario, earlier: Sequence[Result] | None
) -> list[tuple[Result, Result]]:
    handler = app.handlers[scenario.handler]
    state = handler.initial
    results = []
    for at, (name, body) in enumerate(scenario.messages):
        message = message_codec(handler.routes[name].message_type).decode(body)
        place = (handler.name, scenario.business_id, f"{number}-{at}", _NOW + at * _SECOND)
        recorded = None if earlier is None else earlier[at].captured
        first = again = _deliver(handler, state, message, Context(*place, recorded=recorded))
        if earlier is not None:
            again = _deliver(handler, state, message, Context(*place, recorded=recorded))
        results.append((first, again))
        state = first.state
    return results


def _deliver(handler: HandlerDefinition, state: bytes, message: Message, context: Context) -> Result:
    try:
        handling = handle(handler, state, message, context)
    except NondeterminismError as error:
        return Result(type(error).__name__, str(error), (), state, dict(context.captured))
    except FAILURES as error:
        return Result(type(error).__name__, None, (), state, dict(context.captured))
    return Result(None, None, handling.published, handling.after, handling.captured)


def main() -> None:
    """Read an app, scenarios and results from standard input, and write the results of a rerun to standard output."""
    answers = sys.stdout.buffer
    sys.stdout = sys.stderr  # a handler may print
    app, scenarios, earlier = pickle.load(sys.stdin.buffer)  # noqa: S301 - from the process that started this one
    pickle.dump(rerun(app, scenarios, earlier), answers)
