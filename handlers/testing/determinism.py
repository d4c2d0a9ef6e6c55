"""The check of determinism: results must be equal, byte for byte, in a process with another hash seed and time zone."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from handlers.app import App
from handlers.context import Context, Published, message_codec
from handlers.errors import NondeterminismError, SpecError
from handlers.guard import guarded
from handlers.message import Message
from handlers.testing.spec import FAILURES, handle

_BY_IMPORT = "It imports messages, states and handlers: define them at the top of a module."
_BEGINNING_OF_2026 = 1_767_225_600_000_000
_SECOND = 1_000_000

Scenario = tuple[str, str, tuple[tuple[str, str], ...]]
"""A handler, a business id, and messages for it: of each the name of its type, and its JSON body."""


class Result(NamedTuple):
    """The result of a message: the error that was raised, or outputs, encoded next state and captured values."""

    error: str | None
    violation: str | None
    outputs: tuple[Published, ...]
    state: bytes
    captured: Mapping[str, bytes]


def check_determinism(
    app: App, *, examples: int = 100, seed: int = 0, strategies: Mapping[type[Message], Any] | None = None
) -> None:
    """Handle generated messages here and in another process, and compare outputs, ids and states byte by byte.

    `examples` is the number of business objects, with up to six messages each, which Hypothesis generates from the
    types of the fields; the same `seed` generates the same messages. `strategies` holds a strategy of your own for a
    message type whose validators check more than the limits of its fields. The other process has another hash seed,
    time zone and locale, handles the objects in reverse order, and gets each message twice. Captured values are
    recorded here and replayed there.

    Raises `AssertionError`, which names the handler, the message and what differs, and for a call that the guard does
    not allow. Raises `SpecError` when the other process cannot import the handlers, when no valid messages are found,
    and when Hypothesis is not installed. Takes about a second, and a millisecond for each message.
    """
    __tracebackhide__ = True
    try:
        from handlers.testing import strategies as generator  # noqa: PLC0415 - only this needs Hypothesis
    except ModuleNotFoundError as error:
        raise SpecError(
            "check_determinism needs Hypothesis: pip install 'consistent-messaging[testing]'."
        ) from error
    scenarios = generator.scenarios(app, examples, seed, strategies or {})
    app = guarded(app)
    here = [_run(app, number, scenario) for number, scenario in enumerate(scenarios)]
    for scenario, results in zip(scenarios, here, strict=True):
        for at, result in enumerate(results):
            if result.violation:
                raise AssertionError(f"{_described(scenario, at)}: {result.violation}")
    environment = {
        "PYTHONHASHSEED": "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1",
        "TZ": "<+1245>-12:45",
        "LC_ALL": "C",
    }
    there = _run_elsewhere(app, scenarios, here, environment)
    failures = list(_failures(scenarios, here, there))
    if failures:
        _, problem = min(failures)
        shown = ", ".join(f"{name}={value}" for name, value in environment.items())
        raise AssertionError(f"{problem}\n(in another process with {shown}; {len(failures)} messages differ)")


def _run(app: App, number: int, scenario: Scenario, earlier: Sequence[Result] | None = None) -> list[Result]:
    """Handle the messages of a scenario; with the values captured earlier, each twice, and return both results."""
    name, business_id, messages = scenario
    handler = app.handlers[name]
    state, results = handler.initial, []
    for at, (message_type, body) in enumerate(messages):
        message = message_codec(handler.routes[message_type].message_type).decode(body)
        now = _BEGINNING_OF_2026 + at * _SECOND
        before = state
        for delivery in range(1 if earlier is None else 2):
            recorded = None if earlier is None else earlier[at].captured
            context = Context(name, business_id, f"{number}-{at}", now, recorded=recorded)
            try:
                done = handle(handler, before, message, context)
                result = Result(None, None, done.published, done.after, done.captured)
            except FAILURES as error:
                violation = str(error) if isinstance(error, NondeterminismError) else None
                result = Result(type(error).__name__, violation, (), before, dict(context.captured))
            state = result.state if delivery == 0 else state
            results.append(result)
    return results


def _run_elsewhere(
    app: App, scenarios: list[Scenario], here: list[list[Result]], environment: Mapping[str, str]
) -> list[list[Result]]:
    try:
        given = pickle.dumps((app, scenarios, here))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise SpecError(f"The app cannot be sent to another process: {error}. {_BY_IMPORT}") from error
    done = subprocess.run(
        [sys.executable, "-c", "from handlers.testing.determinism import main; main()"],
        input=given,
        env={**os.environ, **environment, "PYTHONPATH": os.pathsep.join(path or "." for path in sys.path)},
        capture_output=True,
        timeout=600,
        check=False,
    )
    if done.returncode:
        last = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise SpecError(f"The other process failed: {last} {_BY_IMPORT}")
    results: list[list[Result]] = pickle.loads(done.stdout)  # noqa: S301 - from the process above
    return results


def main() -> None:
    """Be the other process: run the scenarios of standard input from last to first, and write the results."""
    answers = sys.stdout.buffer
    sys.stdout = sys.stderr  # a handler may print
    app, scenarios, here = pickle.load(sys.stdin.buffer)  # noqa: S301 - from the process that started this one
    numbers = reversed(range(len(scenarios)))
    results = [_run(app, number, scenarios[number], here[number]) for number in numbers]
    pickle.dump(results[::-1], answers)


def _failures(
    scenarios: list[Scenario], here: list[list[Result]], there: list[list[Result]]
) -> Iterator[tuple[tuple[int, int], str]]:
    """Yield the messages that differ, each with its size: the smallest is reported."""
    for scenario, ours, theirs in zip(scenarios, here, there, strict=True):
        for at, first in enumerate(ours):
            lines = [*_differences(first, theirs[2 * at])] or [*_differences(first, theirs[2 * at + 1])]
            if lines:
                size = at, len(scenario[2][at][1])
                yield size, "\n  ".join([f"{_described(scenario, at)} differs:", *lines])
                break  # later messages are handled on other states


def _described(scenario: Scenario, at: int) -> str:
    handler, business_id, messages = scenario
    name, body = messages[at]
    return f"{handler} is not deterministic: message {at + 1} for {business_id!r}, {name} {body}"


def _differences(here: Result, there: Result) -> Iterator[str]:
    if here.violation != there.violation or here.error != there.error:
        yield f"raised: {here.error} here, {there.violation or there.error} there"
        return
    if len(here.outputs) != len(there.outputs):
        yield f"published: {len(here.outputs)} messages here, {len(there.outputs)} there"
    for at, (ours, theirs) in enumerate(zip(here.outputs, there.outputs, strict=False)):
        for part, one, other in zip(ours._fields, ours, theirs, strict=True):
            if one != other:
                yield f"published[{at}].{part}: {_text(one)} here, {_text(other)} there"
    if here.state != there.state:
        yield f"state: {_text(here.state)} here, {_text(there.state)} there"


def _text(value: object) -> object:
    return value.decode() if isinstance(value, bytes) else value
