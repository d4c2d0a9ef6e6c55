"""The one thing that all contenders do: call the same handler with the same messages.

They differ in where the state is before and after, and in how they know that a message was handled.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from handlers import Context, Message, Published, State
from handlers.context import message_codec
from samples.shooting_range import app

HANDLER = app.handlers["ShootingRange"]
TABLE = "games"
NOW = 1_767_225_600_000_000
"""The clock of contenders that record none, in microseconds since 1970 UTC."""

States = dict[str, str]
"""Final states as JSON, by business id."""


class Delivery(NamedTuple):
    """A message as a contender that works on one at a time gets it."""

    message_id: str
    type: str
    body: str


def decode(type_: str, body: str) -> Message:
    """Return the message that a body holds."""
    return message_codec(HANDLER.routes[type_].message_type).decode(body)


def business_id(type_: str, message: Message) -> str:
    """Return the id of the game that a message is for."""
    return HANDLER.routes[type_].business_id(message)


def handle(
    state: State, type_: str, message: Message, message_id: str, game: str
) -> tuple[State, list[Published]]:
    """Call the handler as the framework does: with a context of its own. Return the next state and the outputs."""
    route = HANDLER.routes[type_]
    context = Context(HANDLER.name, game, message_id, NOW)
    return route.revisions[route.newest](state, message, context), context.published


def initial_state() -> State:
    """Return the state that every game begins in."""
    return HANDLER.codec.decode(HANDLER.initial)


def encode_state(state: State) -> str:
    """Return a state as JSON."""
    return HANDLER.codec.encode(state).decode()


def decode_state(text: str) -> State:
    """Return the state that the JSON holds."""
    return HANDLER.codec.decode(text)


def final_states(deliveries: Iterable[Delivery]) -> States:
    """Fold messages in memory, each once: what every contender must end in."""
    states: dict[str, State] = {}
    seen: set[str] = set()
    for message_id, type_, body in deliveries:
        if message_id in seen:
            continue
        seen.add(message_id)
        message = decode(type_, body)
        game = business_id(type_, message)
        states[game], _ = handle(states.get(game) or initial_state(), type_, message, message_id, game)
    return {game: encode_state(state) for game, state in states.items()}
