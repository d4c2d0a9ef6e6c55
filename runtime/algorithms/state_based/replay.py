"""Replays: a duplicate handled again on the version before its own, with the context recorded then."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from handlers import Context
from handlers.app import HandlerDefinition
from runtime.algorithms.invocation import HandlerFailedError, Invocation, digest_state, invoke_handler
from runtime.algorithms.state_based.difference import Difference, compare_outputs, compare_states
from runtime.messages.outcome import Output
from runtime.messages.parsing import Prepared
from runtime.storage.version import Version

FirstOutputs = Callable[[], Sequence[Output] | None]
"""Returns the outputs of a message's first delivery, None when they are not in memory."""


def _not_in_memory() -> None: ...


class RevisionGoneError(HandlerFailedError):
    """Raised when the code no longer has the revision of a method that made a version."""


def replay(handler: HandlerDefinition, business_id: str, delivery: Prepared, known: Version) -> Invocation:
    """Handle a delivery of a known message as it was handled first: same state, clock, captured values, revision.

    Raises `RevisionGoneError`, `HandlerFailedError`, and `CodecError` when the state before it cannot be read.
    """
    record = known.record
    if record.revision not in delivery.route.revisions:
        problem = f"Revision {record.revision} of {handler.name} for {record.type} is no longer there."
        raise RevisionGoneError(problem)
    before = handler.codec.upcast(known.before, known.schema)
    context = Context(
        handler.name,
        business_id,
        delivery.envelope.message_id,
        record.now,
        record.headers,
        recorded=record.captured or {},
    )
    return invoke_handler(
        handler,
        delivery.route,
        record.revision,
        state=handler.codec.reread(before),
        before=before,
        message=delivery.message,
        context=context,
    )


def find_difference(
    handler: HandlerDefinition,
    invocation: Invocation,
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
    state = None if invocation.state_digest == expected else compare_states(recorded, invocation.after)
    outputs = (
        None
        if invocation.outputs_digest == record.outputs_digest
        else compare_outputs(invocation.published, record.outputs_digest, first_outputs())
    )
    if state is None and outputs is None:
        return None
    return Difference(known.number, state, outputs, (known.schema, codec.version) if is_upcast else None)
