"""Invocation: handles a message as the runtime does, in memory, with states and messages decoded from bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from handlers.app import HandlerDefinition
from handlers.context import Context, Published, message_codec
from handlers.errors import CodecError, InputStateChangedError
from handlers.message import Message, message_name

FAILURES = (Exception, SystemExit)
"""What a handler may raise without ending the process; in a batch its message becomes a dead letter."""


class Handling(NamedTuple):
    """The result of one call of a handler: the encoded next state, the outputs and the captured values."""

    after: bytes
    published: tuple[Published, ...]
    captured: Mapping[str, bytes]


def handle(handler: HandlerDefinition, before: bytes, message: Message, context: Context) -> Handling:
    """Call the newest method for a message on an encoded state.

    Raises what the handler raises, `CodecError` for a result that is no valid state, and `InputStateChangedError` when
    the handler mutated its input state.
    """
    codec, route = handler.codec, handler.routes[message_name(type(message))]
    state, seen = codec.reread(before), round_trip(message)
    method = route.revisions[route.newest]
    returned = method(state, seen, context)
    if returned is None:
        raise CodecError(
            f"{method.__qualname__} returned None: return the next state, or the input state unchanged."
        )
    after = codec.encode(returned)
    if codec.encode(state) != before:
        raise InputStateChangedError(
            f"{handler.name} mutated its input state: return a changed copy, state.model_copy(update=...)."
        )
    after = before if after == before else codec.canonical(after)[1]
    return Handling(after, tuple(context.published), dict(context.captured))


def round_trip(message: Message) -> Message:
    """Return a message encoded and decoded, as one read from a log. Raises `CodecError`."""
    codec = message_codec(type(message))
    return codec.reread(codec.encode(message))
