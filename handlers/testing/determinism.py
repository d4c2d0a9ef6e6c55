"""The check of determinism: results must be equal, byte for byte, in a process with another hash seed and time zone."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from handlers.app import App
from handlers.errors import SpecError
from handlers.guard import guarded
from handlers.message import Message
from handlers.testing.scenario import Result, Scenario, run

if TYPE_CHECKING:
    from handlers.testing.strategies import Strategies

_TIME_ZONE = "<+1245>-12:45"
_LONGEST_WAIT = 600


def check_determinism(
    app: App,
    *,
    examples: int = 100,
    seed: int = 0,
    strategies: Mapping[type[Message], Any] | None = None,
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
    scenarios = _scenarios(app, examples, seed, strategies or {})
    app = guarded(app)
    here = run(app, scenarios)
    _refuse_violations(scenarios, here)
    environment = {
        "PYTHONHASHSEED": "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1",
        "TZ": _TIME_ZONE,
        "LC_ALL": "C",
    }
    there = _run_elsewhere(app, scenarios, here, environment)
    failures = list(_failures(scenarios, here, there))
    if failures:
        _, problem = min(failures)
        shown = ", ".join(f"{name}={value}" for name, value in environment.items())
        raise AssertionError(f"{problem}\n(in another process with {shown}; {len(failures)} messages differ)")


def _scenarios(app: App, examples: int, seed: int, strategies: Strategies) -> list[Scenario]:
    try:
        from handlers.testing import strategies as generator  # noqa: PLC0415 - only this needs Hypothesis
    except ModuleNotFoundError as error:
        raise SpecError(
            "check_determinism needs Hypothesis: pip install 'consistent-messaging[testing]'."
        ) from error
    return generator.scenarios(app, examples, seed, strategies)


def _run_elsewhere(
    app: App, scenarios: Sequence[Scenario], here: Sequence[Sequence[Result]], environment: Mapping[str, str]
) -> list[list[tuple[Result, Result]]]:
    done = subprocess.run(
        [sys.executable, "-c", "from handlers.testing.scenario import main; main()"],
        input=_pickled(app, scenarios, here),
        env={**os.environ, **environment, "PYTHONPATH": os.pathsep.join(path or "." for path in sys.path)},
        capture_output=True,
        timeout=_LONGEST_WAIT,
        check=False,
    )
    if done.returncode:
        last = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise SpecError(f"The other process failed: {last} {_BY_IMPORT}")
    results: list[list[tuple[Result, Result]]] = pickle.loads(done.stdout)  # noqa: S301 - from the process above
    return results


_BY_IMPORT = "It imports messages, states and handlers: define them at the top of a module."


def _pickled(*what: object) -> bytes:
    try:
        return pickle.dumps(what)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise SpecError(f"The app cannot be sent to another process: {error}. {_BY_IMPORT}") from error


def _refuse_violations(scenarios: Sequence[Scenario], results: Sequence[Sequence[Result]]) -> None:
    __tracebackhide__ = True
    for scenario, found in zip(scenarios, results, strict=True):
        for at, result in enumerate(found):
            if result.violation:
                raise AssertionError(f"{_described(scenario, at)}: {result.violation}")


def _failures(
    scenarios: Sequence[Scenario],
    here: Sequence[Sequence[Result]],
    there: Sequence[Sequence[tuple[Result, Result]]],
) -> Iterator[tuple[tuple[int, int], str]]:
    """Yield the messages that differ, each with its size: the smallest is reported."""
    for scenario, ours, theirs in zip(scenarios, here, there, strict=True):
        for at, (first, others) in enumerate(zip(ours, theirs, strict=True)):
            lines = next(
                (found for found in (list(_differences(first, other)) for other in others) if found), None
            )
            if lines:
                yield (
                    (at, len(scenario.messages[at][1])),
                    "\n  ".join([f"{_described(scenario, at)} differs:", *lines]),
                )
                break  # later messages are handled on other states


def _described(scenario: Scenario, at: int) -> str:
    name, body = scenario.messages[at]
    return f"{scenario.handler} is not deterministic: message {at + 1} for {scenario.business_id!r}, {name} {body}"


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
