"""Replays: a duplicate handled again on the version before its own, in the surroundings recorded with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from handlers import Context
from handlers.app import HandlerDefinition
from runtime.algorithms.invocation import HandlerFailedError, Invocation, digest_state, invoke_handler
from runtime.algorithms.state_based.difference import Difference, compare_outputs, compare_states
from runtime.messages.outcome import Output
from runtime.messages.parsing import Prepared
from runtime.storage.stream import KnownVersion

FirstOutputs = Callable[[], Sequence[Output] | None]
"""Gives the outputs of a message's first delivery, None when they are not in hand."""


def _not_in_hand() -> None: ...


class RevisionGoneError(HandlerFailedError):
    """Raised when the code no longer has the revision of a method that made a version."""


def replay(
    handler: HandlerDefinition, business_id: str, delivery: Prepared, known: KnownVersion
) -> Invocation:
    """Handle a delivery of a known message as it was handled first: same state, clock, captured values, revision.

    Raises `RevisionGoneError`, `HandlerFailedError`, and `CodecError` when the state before it cannot be read.
    """
    version = known.version
    if version.revision not in delivery.route.revisions:
        problem = f"Revision {version.revision} of {handler.name} for {version.type} is no longer there."
        raise RevisionGoneError(problem)
    before = handler.codec.upcast(known.before, known.schema)
    context = Context(
        handler.name,
        business_id,
        delivery.envelope.message_id,
        version.now,
        version.headers,
        recorded=version.captured or {},
    )
    return invoke_handler(
        handler,
        delivery.route,
        version.revision,
        state=handler.codec.reread(before),
        before=before,
        message=delivery.message,
        context=context,
    )


def find_difference(
    handler: HandlerDefinition,
    invocation: Invocation,
    known: KnownVersion,
    first_outputs: FirstOutputs = _not_in_hand,
) -> Difference | None:
    """Compare a replay with the digests of its version; None when it meets both.

    A state of another schema version is compared as it is upcast. Without the first outputs only their digest is
    known; they are asked for when there is a difference. Raises `CodecError`.
    """
    codec, version = handler.codec, known.version
    is_upcast = known.schema != codec.version
    recorded = codec.upcast(known.after, known.schema)
    expected = digest_state(recorded) if is_upcast else version.state_digest
    state = None if invocation.state_digest == expected else compare_states(recorded, invocation.after)
    outputs = (
        None
        if invocation.outputs_digest == version.outputs_digest
        else compare_outputs(invocation.published, version.outputs_digest, first_outputs())
    )
    if state is None and outputs is None:
        return None
    return Difference(known.number, state, outputs, (known.schema, codec.version) if is_upcast else None)
