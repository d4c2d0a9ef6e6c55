"""Handling a message as the runtime does, in memory: all that a handler sees and gives has been through the codec."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from handlers.app import HandlerDefinition
from handlers.context import Context, Published, message_codec
from handlers.errors import CodecError, InputStateChangedError
from handlers.message import Message, message_name

FAILURES = (Exception, SystemExit)
"""What a handler may raise without ending the process: its message is a dead letter then."""


class Handling(NamedTuple):
    """What one call of a handler gave: the encoded next state, the outputs and the captured values."""

    after: bytes
    published: tuple[Published, ...]
    captured: Mapping[str, bytes]


def handle(handler: HandlerDefinition, before: bytes, message: Message, context: Context) -> Handling:
    """Call the newest method for a message on an encoded state.

    Raises what the handler raises, and a `HandlersError` for a result that is no valid state or when the state
    that was passed in is another one after the call.
    """
    codec, route = handler.codec, handler.routes[message_name(type(message))]
    state, seen = codec.reread(before), settled(message)
    method = route.revisions[route.newest]
    returned = method(state, seen, context)
    if returned is None:
        problem = f"{method.__qualname__} returned None: return the next state, or the given one when nothing changes."
        raise CodecError(problem)
    after = codec.encode(returned)
    if codec.encode(state) != before:
        problem = f"{handler.name} changed the state that it was given: return a changed copy (model_copy)."
        raise InputStateChangedError(problem)
    after = before if after == before else codec.settled(after)[1]
    return Handling(after, tuple(context.published), dict(context.captured))


def settled(message: Message) -> Message:
    """Return a message as it comes from a log. Raises `CodecError`."""
    codec = message_codec(type(message))
    return codec.reread(codec.encode(message))
