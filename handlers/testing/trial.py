"""Trials: stories of business objects played through their handlers, with what came of each message.

`main` is what another process runs: it plays the stories that it is given in the opposite order, delivers each
message twice, and gives back what came of it.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

from handlers.app import App, HandlerDefinition
from handlers.context import Context, Published, message_codec
from handlers.errors import NondeterminismError
from handlers.message import Message
from handlers.testing.invocation import FAILURES, handle

_NOW = 1_767_225_600_000_000
_SECOND = 1_000_000


class Story(NamedTuple):
    """What happens to one business object: messages by the name of their type and their JSON body."""

    handler: str
    business_id: str
    messages: tuple[tuple[str, str], ...]


class Result(NamedTuple):
    """What came of a message: the error that was raised, or outputs, encoded next state and captured values."""

    error: str | None
    violation: str | None
    outputs: tuple[Published, ...]
    state: bytes
    captured: Mapping[str, bytes]


def play(app: App, stories: Sequence[Story]) -> list[list[Result]]:
    """Play stories one after another, and return the results of each."""
    return [
        [first for first, _ in _play_one(app, number, story, None)] for number, story in enumerate(stories)
    ]


def play_again(
    app: App, stories: Sequence[Story], earlier: Sequence[Sequence[Result]]
) -> list[list[tuple[Result, Result]]]:
    """Play stories from the last to the first with the values captured earlier; each message comes twice."""
    numbers = range(len(stories))
    results = {
        number: _play_one(app, number, stories[number], earlier[number]) for number in reversed(numbers)
    }
    return [results[number] for number in numbers]


def _play_one(
    app: App, number: int, story: Story, earlier: Sequence[Result] | None
) -> list[tuple[Result, Result]]:
    handler = app.handlers[story.handler]
    state = handler.initial
    results = []
    for at, (name, body) in enumerate(story.messages):
        message = message_codec(handler.routes[name].message_type).decode(body)
        deliver = partial(
            _deliver, handler, state, message, story.business_id, f"{number}-{at}", _NOW + at * _SECOND
        )
        first = deliver(None if earlier is None else earlier[at].captured)
        results.append((first, first if earlier is None else deliver(earlier[at].captured)))
        state = first.state
    return results


def _deliver(  # noqa: PLR0917 - what is known of the message first
    handler: HandlerDefinition,
    state: bytes,
    message: Message,
    business_id: str,
    message_id: str,
    now: int,
    recorded: Mapping[str, bytes] | None,
) -> Result:
    context = Context(handler.name, business_id, message_id, now, recorded=recorded)
    return _result(handler, state, message, context)


def _result(handler: HandlerDefinition, state: bytes, message: Message, context: Context) -> Result:
    try:
        handling = handle(handler, state, message, context)
    except NondeterminismError as error:
        return Result(type(error).__name__, str(error), (), state, dict(context.captured))
    except FAILURES as error:
        return Result(type(error).__name__, None, (), state, dict(context.captured))
    return Result(None, None, handling.published, handling.after, handling.captured)


def main() -> None:
    """Read an app, stories and results from the standard input, and write the results of another trial."""
    answers = sys.stdout.buffer
    sys.stdout = sys.stderr  # a handler may print
    app, stories, earlier = pickle.load(sys.stdin.buffer)  # noqa: S301 - from the process that started this one
    pickle.dump(play_again(app, stories, earlier), answers)
