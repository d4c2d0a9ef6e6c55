"""Replays: a duplicate handled again on the version before its own, with the context recorded then."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from handlers import Context, Message, Published, State
from handlers.app import HandlerDefinition
from handlers.route import Route
from runtime.algorithms.invocation import HandlerFailedError, invoke_handler
from runtime.algorithms.state_based.difference import Difference, compare_outputs, compare_states
from runtime.messages.digests import digest_outputs, digest_state
from runtime.messages.outcome import Output
from runtime.storage.version import Version

FirstOutputs = Callable[[], Sequence[Output] | None]
"""Returns the outputs of a message's first delivery, None when they are not in memory."""


def _not_in_memory() -> None: ...


class RevisionGoneError(HandlerFailedError):
    """Raised when the code no longer has the revision of a method that made a version."""


class Replayed(NamedTuple):
    """What a replay gave: the encoded next state, and the outputs."""

    after: bytes
    published: Sequence[Published]


class Replayer:
    """Handles known messages of one stream again."""

    def __init__(self, handler: HandlerDefinition, business_id: str) -> None:
        self._handler = handler
        self._business_id = business_id
        self._newest: tuple[bytes, State] | None = None

    def replay(self, message_id: str, route: Route, message: Message, known: Version) -> Replayed:
        """Handle a known message as it was handled first: same state, clock, captured values, revision.

        Raises `RevisionGoneError`, `HandlerFailedError`, and `CodecError` when the state before it cannot be read.
        """
        handler, record = self._handler, known.record
        method = route.revisions.get(record.revision)
        if method is None:
            problem = f"Revision {record.revision} of {handler.name} for {record.type} is no longer there."
            raise RevisionGoneError(problem)
        before = handler.codec.upcast(known.before, known.schema)
        context = Context(
            handler.name,
            self._business_id,
            message_id,
            record.now,
            record.headers,
            recorded=record.captured or {},
            draw_key=handler.draw_key,
        )
        state, after = invoke_handler(
            handler, method, self._take(before), before, message=message, context=context
        )
        self._newest = (after, state)
        return Replayed(after, context.published)

    def _take(self, encoded: bytes) -> State:
        """Return the model of an encoded state: that of the replay before, if it is plain and has the same bytes.

        Duplicates mostly come in the order of their versions. A model is used once: a handler that fails may have
        changed it.
        """
        codec, newest, self._newest = self._handler.codec, self._newest, None
        if newest is not None and codec.plain is not None and newest[0] == encoded:
            return newest[1]
        return codec.reread(encoded)


def find_difference(
    handler: HandlerDefinition,
    replayed: Replayed,
    known: Version,
    first_outputs: FirstOutputs = _not_in_memory,
) -> Difference | None:
    """Compare a replay with the digests of its version; None when it meets both.

    A state of another schema version is compared as it is upcast. Without the first outputs only their digest is
    known; they are asked for when there is a difference. Raises `CodecError`.
    """
    codec, record = handler.codec, known.record
    is_upcast = known.schema != codec.version
    recorded = codec.upcast(known.after, known.schema)
    expected = digest_state(recorded) if is_upcast else record.state_digest
    after, published = replayed
    state = None if digest_state(after) == expected else compare_states(recorded, after)
    outputs = (
        None
        if digest_outputs(published) == record.outputs_digest
        else compare_outputs(published, record.outputs_digest, first_outputs())
    )
    if state is None and outputs is None:
        return None
    return Difference(known.number, state, outputs, (known.schema, codec.version) if is_upcast else None)
