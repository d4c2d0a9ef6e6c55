"""Replays: a duplicate handled again on the version before its own, with the context recorded then."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from handlers import CodecError, Context, Message, Published, State
from handlers.app import HandlerDefinition
from handlers.handler import Route
from runtime.algorithms.algorithm import HandlerFailedError, failure_of, invoke_handler, settle
from runtime.messages.digests import NO_OUTPUTS, digest_outputs, digest_state
from runtime.messages.parsing import Prepared
from runtime.namesakes import is_from_outside
from runtime.versions.readable import ABSENT, Change, changes, decode
from runtime.versions.run import Version

_SHOWN = 5
_VALUE_LENGTH = 80


@dataclass(frozen=True, slots=True)
class Difference:
    """How a replay of version `number` differs from what was recorded.

    `state` are the fields of the next state that differ, None when it is the same; `outputs` says in words which
    outputs differ, None when they are the same. `schemas` are the recorded schema version and today's, None when they
    are one.
    """

    number: int
    state: tuple[Change, ...] | None
    outputs: str | None
    schemas: tuple[int, int] | None = None

    def __str__(self) -> str:
        kinds, details = [], []
        if self.outputs is not None:
            kinds.append("other outputs")
        if self.state is not None:
            kinds.append("another next state")
            more = f" and {len(self.state) - _SHOWN} fields more" if len(self.state) > _SHOWN else ""
            upcast = ""
            if self.schemas is not None:
                upcast = " (compared in schema version {1}, upcast from {0})".format(*self.schemas)
            fields = [
                f"{each.field} was {shown(each.before)} and is {shown(each.after)}" for each in self.state
            ]
            listed = ", ".join(fields[:_SHOWN]) or "the same fields are written otherwise"
            details.append(f"{listed}{more}{upcast}")
        if self.outputs:
            details.append(self.outputs)
        return (
            f"The replay of version {self.number} has {' and '.join(kinds)} than recorded: {'; '.join(details)}. "
            f"The handler is not deterministic, or was changed without a new revision."
        )


def shown(value: Any) -> str:  # noqa: ANN401 - any JSON value
    """Return a value for a sentence, not longer than one can read."""
    text = ABSENT if value == ABSENT else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _VALUE_LENGTH else f"{text[:_VALUE_LENGTH]}..."


def compare_outputs(now: Sequence[Published], digest: bytes) -> str:
    """Say how today's outputs differ from those of which only this digest was recorded."""
    if not now:
        return "nothing is published, and something was"
    was = ", and nothing was" if digest == NO_OUTPUTS else "; of what was, only the digest is known"
    names = ", ".join([output.type for output in now[:_SHOWN]])
    more = f" and {len(now) - _SHOWN} more" if len(now) > _SHOWN else ""
    return f"{names}{more} {'is' if len(now) == 1 else 'are'} published{was}"


IN_A_ROW = 512
"""How many duplicates are replayed before they are compared: their outputs are in memory."""


class RevisionGoneError(HandlerFailedError):
    """Raised when the code no longer has the revision of a method that made a version."""


class Replayed(NamedTuple):
    """What a replay gave: the encoded next state, and the outputs."""

    after: bytes
    published: Sequence[Published]


class Copy(NamedTuple):
    """A copy of a message that made a version; `position` is its own among the deliveries."""

    message_id: str
    route: Route
    message: Message
    version: Version
    position: int = 0

    @classmethod
    def of(cls, delivery: Prepared, version: Version, position: int = 0) -> Copy:
        """Return the copy that a delivery is."""
        return cls(delivery.envelope.message_id, delivery.route, delivery.message, version, position)


class Replayer:
    """Handles known messages of one stream again."""

    def __init__(self, handler: HandlerDefinition, business_id: str) -> None:
        self._handler = handler
        self._business_id = business_id
        self._context: Context | None = None
        """That of the call under way. An error is the handler's as long as there is one."""

    def replay_all(
        self, copies: Sequence[Copy]
    ) -> tuple[list[Replayed], HandlerFailedError | CodecError | None]:
        """Handle known messages in a row, as `replay` does, up to the first whose replay fails, and return why it does.

        Ends before a version of another schema version or revision than today's code makes: `replay` knows these.
        """
        replayed: list[Replayed] = []
        run = partial(self._replay_all, copies, replayed)
        try:
            self._handler.interceptor.call(run, lambda: self._context)
        except BaseException as error:
            called, self._context = self._context, None
            if called is not None and not is_from_outside(error):
                return replayed, failure_of(called.exceeded or error)
            if isinstance(error, CodecError):
                return replayed, error
            raise
        return replayed, None

    def _replay_all(self, copies: Sequence[Copy], replayed: list[Replayed]) -> None:
        codec = self._handler.codec
        state: State | None = None
        encoded = b""
        for message_id, route, message, version, _ in copies:
            method, before = route.revisions.get(version.record.revision), version.before
            if method is None or version.schema != codec.version:
                return
            if state is None or encoded != before:
                state = codec.reread(before)
            self._context = context = self._recorded(message_id, version)
            values = list(state.__dict__.values())
            returned = method(state, message, context)
            state, encoded = settle(self._handler, method, state, values, before, returned, context)
            published = context.published
            self._context = None
            replayed.append(Replayed(encoded, published))

    def replay(self, copy: Copy) -> Replayed:
        """Handle a known message as it was handled first: same state, clock, captured values, revision.

        Raises `RevisionGoneError`, `HandlerFailedError`, and `CodecError` when the state before it cannot be read.
        """
        handler, known, record = self._handler, copy.version, copy.version.record
        method = copy.route.revisions.get(record.revision)
        if method is None:
            raise RevisionGoneError(
                f"Revision {record.revision} of {handler.name} for {record.type} is no longer there."
            )
        before = handler.codec.upcast(known.before, known.schema)
        context, state = self._recorded(copy.message_id, known), handler.codec.reread(before)
        _, after = invoke_handler(handler, method, state, before, message=copy.message, context=context)
        return Replayed(after, context.published)

    def _recorded(self, message_id: str, known: Version) -> Context:
        """Return the context that a message was handled in first."""
        record = known.record
        return Context(
            self._handler.name,
            self._business_id,
            message_id,
            record.now,
            record.headers,
            recorded=record.captured or {},
            draw_key=self._handler.draw_key,
        )


def meets_digests(replayed: Replayed, version: Version) -> bool:
    """Return whether a replay meets the digests of its version."""
    record = version.record
    return (
        digest_state(replayed.after) == record.state_digest
        and digest_outputs(replayed.published) == record.outputs_digest
    )


def find_difference(handler: HandlerDefinition, replayed: Replayed, known: Version) -> Difference | None:
    """Compare a replay with the digests of its version; None when it meets both.

    A state of another schema version is compared as it is upcast. Raises `CodecError`.
    """
    codec, record = handler.codec, known.record
    is_upcast = known.schema != codec.version
    recorded = codec.upcast(known.after, known.schema)
    expected = digest_state(recorded) if is_upcast else record.state_digest
    after, published = replayed
    state = outputs = None
    if digest_state(after) != expected:
        state = tuple(changes(decode(recorded), decode(after)))
    if digest_outputs(published) != record.outputs_digest:
        outputs = compare_outputs(published, record.outputs_digest)
    if state is None and outputs is None:
        return None
    return Difference(known.number, state, outputs, (known.schema, codec.version) if is_upcast else None)
