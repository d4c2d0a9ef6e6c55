"""Outcomes: what became of one delivery in one handler."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from runtime.messages.envelope import Envelope

OUTPUT_INDEX_BITS = 20

MAX_ERROR_LENGTH = 2000
_END = 100
"""How much of the end of a long error is kept: it says in which line it was raised."""


class Status(StrEnum):
    """The four ends of a delivery."""

    PROCESSED = "processed"
    DUPLICATE = "duplicate"
    TOO_LATE = "too_late"
    DEAD_LETTER = "dead_letter"


class Reason(StrEnum):
    """Why a delivery is a dead letter."""

    INVALID_ENVELOPE = "invalid_envelope"
    UNKNOWN_TYPE = "unknown_type"
    TYPE_NOT_ALLOWED = "type_not_allowed"
    UNKNOWN_HANDLER = "unknown_handler"
    INVALID_BODY = "invalid_body"
    NO_BUSINESS_ID = "no_business_id"
    BUSINESS_ID_MISMATCH = "business_id_mismatch"
    KEY_TOO_LONG = "key_too_long"
    HANDLER_ERROR = "handler_error"
    HANDLER_TIMEOUT = "handler_timeout"
    HANDLER_CRASHED = "handler_crashed"
    ID_REUSED = "id_reused"
    NONDETERMINISTIC = "nondeterministic"
    REPLAY_FAILED = "replay_failed"
    ENQUEUED_IN_FUTURE = "enqueued_in_future"
    TOO_LARGE = "too_large"
    STATE_TOO_LARGE = "state_too_large"
    HELD_BACK = "held_back"
    FORGOTTEN = "forgotten"
    STREAM_DAMAGED = "stream_damaged"


class Output(NamedTuple):
    """A published message, with the columns of a message log.

    `sequence` is the version of the parent shifted by 20 bits, plus the output's index; `enqueued_at` is the
    recorded time of the parent, in microseconds since 1970 UTC.
    """

    message_id: str
    type: str
    body: str
    sequence: int
    enqueued_at: int
    headers: Mapping[str, str]

    def envelope(self) -> Envelope:
        """Return the output as a delivery of its own."""
        return Envelope(
            self.message_id, self.type, self.body, None, self.sequence, self.enqueued_at, self.headers or None
        )


class Outcome(NamedTuple):
    """One delivery's end in one handler. `version` counts the versions of the stream from 1."""

    envelope: Envelope
    handler: str | None
    business_id: str | None
    status: Status
    reason: Reason | None = None
    error: str | None = None
    version: int | None = None
    outputs: tuple[Output, ...] = ()

    @property
    def is_dead_letter(self) -> bool:
        """Whether the delivery is a dead letter."""
        return self.status is Status.DEAD_LETTER


def dead_letter(
    envelope: Envelope,
    reason: Reason,
    error: str,
    handler: str | None = None,
    business_id: str | None = None,
    *,
    length: int = MAX_ERROR_LENGTH,
) -> Outcome:
    """Return the outcome of a delivery that is not handled, with so many characters of the error."""
    shown = shortened(error, length).encode("utf-8", "backslashreplace").decode()
    return Outcome(envelope, handler, business_id, Status.DEAD_LETTER, reason, shown)


def shortened(error: str, length: int) -> str:
    """Return an error that is no longer than it may be: begin and end of a longer one, and how long it was."""
    if len(error) <= length:
        return error
    end = f" ... ({len(error):,} characters) ... {error[-_END:]}"
    return error[: length - len(end)] + end if length >= 2 * len(end) else error[:length]
