"""Replay duplicates on the version before their own, with the recorded context."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from handlers import CodecError, Context, Message, Published, State
from handlers.app import HandlerDefinition
from handlers.handler import Route
from runtime.algorithms.algorithm import HandlerFailedError, failure_of, settle
from runtime.messages.digests import NO_OUTPUTS, digest_outputs, digest_state
from runtime.messages.parsing import Prepared
from runtime.namesakes import is_from_outside
from runtime.versions.readable import ABSENT, Change, changes, decode
from runtime.versions.run import Version

_SHOWN = 5
_VALUE_LENGTH = 80


@dataclass(frozen=True, slots=True)
class Difference:
    """How the replay of a version differs from the record."""

    number: int  # of the version
    state: tuple[Change, ...] | None  # the fields of the next state that differ; None: the states are equal
    outputs: str | None  # describes the difference; None: the outputs are equal
    schemas: tuple[int, int] | None = None  # the recorded schema version and the current one, if they differ

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
            listed = ", ".join(fields[:_SHOWN]) or "the same fields are encoded differently"
            details.append(f"{listed}{more}{upcast}")
        if self.outputs:
            details.append(self.outputs)
        return (
            f"The replay of version {self.number} has {' and '.join(kinds)} than recorded: {'; '.join(details)}. "
            f"The handler is not deterministic, or was changed without a new revision."
        )


def shown(value: Any) -> str:  # noqa: ANN401 - any JSON value
    """Format a JSON value for an error message, shortened to 80 characters."""
    text = ABSENT if value == ABSENT else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _VALUE_LENGTH else f"{text[:_VALUE_LENGTH]}..."


def compare_outputs(now: Sequence[Published], digest: bytes) -> str:
    """Describe how the outputs of a replay differ from the recorded ones, of which only the digest is known."""
    if not now:
        return "no outputs, but some were recorded"
    recorded = (
        "; none were recorded" if digest == NO_OUTPUTS else "; only the digest of the recorded ones is known"
    )
    names = ", ".join([output.type for output in now[:_SHOWN]])
    more = f" and {len(now) - _SHOWN} more" if len(now) > _SHOWN else ""
    return f"{names}{more} {'was' if len(now) == 1 else 'were'} published{recorded}"


IN_A_ROW = 512
"""The maximum number of duplicates replayed at once. It bounds the memory for the outputs of a replay."""


class RevisionGoneError(HandlerFailedError):
    """Raised when the code no longer has the revision that made a version."""


class Replayed(NamedTuple):
    """The result of a replay: the encoded next state, and the outputs."""

    after: bytes
    published: Sequence[Published]


class Copy(NamedTuple):
    """A duplicate: a delivery of a message that made a version."""

    message_id: str
    route: Route
    message: Message
    version: Version
    position: int = 0  # among the deliveries

    @classmethod
    def of(cls, delivery: Prepared, version: Version, position: int = 0) -> Copy:
        """Make the copy of a delivery."""
        return cls(delivery.envelope.message_id, delivery.route, delivery.message, version, position)


class Replayer:
    """Replays known messages of one stream."""

    def __init__(self, handler: HandlerDefinition, business_id: str) -> None:
        self._handler = handler
        self._business_id = business_id
        self._context: Context | None = None
        """The context of the current call. While this is set, an error comes from the handler."""

    def replay_all(
        self, copies: Sequence[Copy]
    ) -> tuple[list[Replayed], HandlerFailedError | CodecError | None]:
        """Replay consecutive known messages with the recorded state, clock, captured values and revision.

        Return the results up to the first failure, and its error, or `None` without a failure. The error is a
        `RevisionGoneError`, another `HandlerFailedError`, or a `CodecError` if a state cannot be read.
        """
        replayed: list[Replayed] = []
        run = partial(self._replay_all, copies, replayed)
        try:
            self._handler.interceptor.call(run, lambda: self._context)
        except BaseException as error:
            called, self._context = self._context, None
            if called is not None and not is_from_outside(error):
                return replayed, failure_of(called.exceeded or error)
            if isinstance(error, CodecError | HandlerFailedError):
                return replayed, error
            raise
        return replayed, None

    def _replay_all(self, copies: Sequence[Copy], replayed: list[Replayed]) -> None:
        handler, codec = self._handler, self._handler.codec
        state: State | None = None
        encoded = b""
        for message_id, route, message, version, _ in copies:
            record, before = version.record, version.before
            method = route.revisions.get(record.revision)
            if method is None:
                raise RevisionGoneError(
                    f"{handler.name} no longer has revision {record.revision} for {record.type}: restore it."
                )
            if version.schema != codec.version:
                before = codec.upcast(before, version.schema)
            if state is None or encoded != before:
                state = codec.reread(before)
            self._context = context = Context(
                handler.name,
                self._business_id,
                message_id,
                record.now,
                record.headers,
                recorded=record.captured or {},
                draw_key=handler.draw_key,
            )
            values = list(state.__dict__.values())
            returned = method(state, message, context)
            state, encoded = settle(handler, method, state, values, before, returned, context)
            published = context.published
            self._context = None
            replayed.append(Replayed(encoded, published))

    def replay(self, copy: Copy) -> Replayed:
        """Replay one known message. Raises the errors of `replay_all`."""
        replayed, error = self.replay_all([copy])
        if error is not None:
            raise error
        return replayed[0]


def meets_digests(replayed: Replayed, version: Version) -> bool:
    """Return whether a replay matches the digests of its version."""
    record = version.record
    return (
        digest_state(replayed.after) == record.state_digest
        and digest_outputs(replayed.published) == record.outputs_digest
    )


def find_difference(handler: HandlerDefinition, replayed: Replayed, known: Version) -> Difference | None:
    """Compare a replay with the digests of its version. Return `None` if both match. Raises `CodecError`.

    A state recorded in another schema version is upcast first.
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
