"""Replays: a duplicate handled again on the version before its own, with the context recorded then."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from handlers import CodecError, Context, Message, Published
from handlers.app import HandlerDefinition
from handlers.route import Route
from runtime.algorithms.invocation import HandlerFailedError, failure_of, invoke_handler
from runtime.algorithms.state_based.chain import Chain, Known, Replays
from runtime.algorithms.state_based.difference import Difference, compare_outputs, compare_states
from runtime.blame import is_from_outside
from runtime.messages.digests import digest_outputs, digest_state, digests_of_outputs, digests_of_states
from runtime.messages.outcome import Output
from runtime.storage.version import Version

IN_A_ROW = 512
"""How many duplicates are replayed before they are compared: their outputs are in memory."""

FirstOutputs = Callable[[], Sequence[Output] | None]
"""Returns the outputs of a message's first delivery, None when they are not in memory."""


def _not_in_memory() -> None: ...


class RevisionGoneError(HandlerFailedError):
    """Raised when the code no longer has the revision of a method that made a version."""


class Replayed(NamedTuple):
    """What a replay gave: the encoded next state, and the outputs."""

    after: bytes
    published: Sequence[Published]


class Copy(NamedTuple):
    """A copy of a message that made a version."""

    message_id: str
    route: Route
    message: Message
    version: Version


class Replayer:
    """Handles known messages of one stream again."""

    def __init__(self, handler: HandlerDefinition, business_id: str) -> None:
        self._handler = handler
        self._business_id = business_id
        self._chain = Chain(handler, business_id)

    def replay_all(self, copies: Sequence[Copy]) -> Replays:
        """Handle known messages in a row, as `replay` does, up to the first whose replay fails.

        Ends before a version of another schema version or revision than today's code makes: `replay` knows these.
        """
        replays = Replays()
        try:
            self._chain.replay(replays, list(self._ready(copies)))
        except CodecError as error:
            replays.error = failure_of(error) if replays.is_calling else error
        except BaseException as error:
            if not replays.is_calling or is_from_outside(error):
                raise
            replays.error = failure_of(error)
        return replays

    def _ready(self, copies: Iterable[Copy]) -> Iterator[Known]:
        """Give what replays need, up to the first of a version that today's code did not make as it is."""
        for message_id, route, message, version in copies:
            record = version.record
            method = route.revisions.get(record.revision)
            if method is None or version.schema != self._handler.codec.version:
                return
            yield Known(
                message_id, method, message, record.now, record.headers, record.captured, version.before
            )

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
        _, after = invoke_handler(
            handler, method, handler.codec.reread(before), before, message=message, context=context
        )
        return Replayed(after, context.published)


def meets_digests(replays: Replays, versions: Sequence[Version]) -> Iterator[bool]:
    """Say of each replay whether it meets the digests of its version."""
    states, outputs = digests_of_states(replays.afters), digests_of_outputs(replays.published)
    for state, output, version in zip(states, outputs, versions, strict=False):
        yield state == version.record.state_digest and output == version.record.outputs_digest


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
