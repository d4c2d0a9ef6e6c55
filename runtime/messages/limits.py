"""How large a message may be: its size is part of its envelope."""

from __future__ import annotations

from dataclasses import dataclass, fields

from handlers.context import OutputRoom
from handlers.unpacking import MAX_DEPTH
from runtime.errors import UsageError
from runtime.messages.outcome import MAX_ERROR_LENGTH

KIB = 2**10
MIB = 2**20
GIB = 2**30


@dataclass(frozen=True, slots=True)
class MessageLimits:
    """What a message is refused for as `too_large`, and how long the error of a dead letter is.

    `line` is for lines of a log, and for rows of a table that are no messages, as JSON. `headers` are counted as the
    bytes of their names and values; ids, types and other texts of an envelope may have as many each. `outputs` and
    `output_bytes` are for all that one message publishes. `error` is in characters, everything else in bytes. JSON of a
    greater `depth` than 200 is not read at all.
    """

    line: int = MIB
    body: int = MIB
    headers: int = 64 * KIB
    outputs: int = 1000
    output_bytes: int = 4 * MIB
    error: int = MAX_ERROR_LENGTH
    depth: int = MAX_DEPTH

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) < 1:
                raise UsageError(f"The limit {field.name} of messages is 1 at least.")
        if self.depth > MAX_DEPTH:
            raise UsageError(
                f"The depth of messages is limited to {MAX_DEPTH}: what reads JSON goes no deeper."
            )

    @property
    def room(self) -> OutputRoom:
        """What one message may publish."""
        return OutputRoom(self.outputs, self.output_bytes)

    def described(self) -> str:
        """Return the limits that are not the usual ones, as the ledger has them."""
        changed = [field.name for field in fields(self) if getattr(self, field.name) != field.default]
        return "".join(f", max_{name}={getattr(self, name)}" for name in changed)


USUAL = MessageLimits()
