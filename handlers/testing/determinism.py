"""Determinism: the same messages give the same, to the byte, in another process, order, time zone and hash seed."""

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
from handlers.testing.trial import Result, Story, play

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

    `examples` is the number of business objects, with up to six messages each, which Hypothesis makes from the types
    of the fields. For a message type that checks more than its fields' limits, give a strategy of your own. The
    other process has another hash seed, time zone and locale, takes the objects in the opposite order, and gets
    each message twice. Captured values are those of the first time, as they would be for a duplicate.

    Raises `AssertionError`, which names the handler, the message and what differs; also for a call that the guard
    refuses. Raises `SpecError` when the other process cannot import the handlers, when no valid messages are
    found, and when Hypothesis is not installed. Takes about a second, and a millisecond for each message.
    """
    __tracebackhide__ = True
    stories = _stories(app, examples, seed, strategies or {})
    app = guarded(app)
    here = play(app, stories)
    _refuse_violations(stories, here)
    environment = _other_environment()
    there = _play_elsewhere(app, stories, here, environment)
    failures = list(_failures(stories, here, there))
    if failures:
        _, problem = min(failures)
        message = (
            f"{problem}\n(in another process, with {_shown(environment)}; {len(failures)} messages differ)"
        )
        raise AssertionError(message)


def _stories(app: App, examples: int, seed: int, strategies: Strategies) -> list[Story]:
    try:
        from handlers.testing import strategies as generator  # noqa: PLC0415 - only this needs Hypothesis
    except ModuleNotFoundError as error:
        problem = "check_determinism needs Hypothesis: pip install 'consistent-messaging[testing]'."
        raise SpecError(problem) from error
    return generator.stories(app, examples, seed, strategies)


def _other_environment() -> dict[str, str]:
    seed = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
    return {"PYTHONHASHSEED": seed, "TZ": _TIME_ZONE, "LC_ALL": "C"}


def _shown(environment: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in environment.items())


def _play_elsewhere(
    app: App, stories: Sequence[Story], here: Sequence[Sequence[Result]], environment: Mapping[str, str]
) -> list[list[tuple[Result, Result]]]:
    done = subprocess.run(
        [sys.executable, "-c", "from handlers.testing.trial import main; main()"],
        input=_pickled(app, stories, here),
        env={**os.environ, **environment, "PYTHONPATH": os.pathsep.join(path or "." for path in sys.path)},
        capture_output=True,
        timeout=_LONGEST_WAIT,
        check=False,
    )
    if done.returncode:
        last = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        problem = f"Another process cannot handle the messages: {last} {_BY_IMPORT}"
        raise SpecError(problem)
    results: list[list[tuple[Result, Result]]] = pickle.loads(done.stdout)  # noqa: S301 - from the process above
    return results


_BY_IMPORT = "It finds messages, states and handlers by importing them: define them at the top of a module."


def _pickled(*what: object) -> bytes:
    try:
        return pickle.dumps(what)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        problem = f"The app cannot be sent to another process: {error}. {_BY_IMPORT}"
        raise SpecError(problem) from error


def _refuse_violations(stories: Sequence[Story], results: Sequence[Sequence[Result]]) -> None:
    __tracebackhide__ = True
    for story, found in zip(stories, results, strict=True):
        for at, result in enumerate(found):
            if result.violation:
                message = f"{_told(story, at)}: {result.violation}"
                raise AssertionError(message)


def _failures(
    stories: Sequence[Story],
    here: Sequence[Sequence[Result]],
    there: Sequence[Sequence[tuple[Result, Result]]],
) -> Iterator[tuple[tuple[int, int], str]]:
    """Give the messages that differ, each with its size: the smallest is the one to look at."""
    for story, ours, theirs in zip(stories, here, there, strict=True):
        for at, (first, others) in enumerate(zip(ours, theirs, strict=True)):
            lines = next(
                (found for found in (list(_differences(first, other)) for other in others) if found), None
            )
            if lines:
                yield (at, len(story.messages[at][1])), "\n  ".join([f"{_told(story, at)} differs:", *lines])
                break  # what follows has another state before it


def _told(story: Story, at: int) -> str:
    name, body = story.messages[at]
    return f"{story.handler} is not deterministic: message {at + 1} for {story.business_id!r}, {name} {body}"


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
