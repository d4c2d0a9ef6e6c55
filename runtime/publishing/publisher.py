"""What a target outside is to the runner: it gives publishers, each of which sends one slice after another."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from runtime.publishing.slices import CommittedOutput


class Promise(StrEnum):
    """How often an output takes effect at a target, whatever is killed, and however often the runner is restarted."""

    EXACTLY_ONCE = "exactly once"
    ONCE_BY_KEY = "once at receivers that honour the key"
    ONCE_WITHIN_WINDOW = "once within the duplicate window"
    AT_LEAST_ONCE = "at least once"
    AT_MOST_ONCE = "at most once"

    @property
    def is_transactional(self) -> bool:
        """Whether a slice is visible as a whole, with its marker, or not at all."""
        return self is Promise.EXACTLY_ONCE

    @property
    def is_noted_before(self) -> bool:
        """Whether outputs are noted as sent before they are: what is not certain to be unsent is not sent again."""
        return self is Promise.AT_MOST_ONCE


class SliceName(NamedTuple):
    """The name of a slice, the same for whoever publishes the same batch to the same target in the same way."""

    publication: str
    number: int

    def __str__(self) -> str:
        return f"{self.publication}-{self.number:06}"


class Refused(NamedTuple):
    """An output that a target will not take, however often it is sent, and why: a dead letter of the publication."""

    message_id: str
    type: str
    business_id: str
    why: str
    handler: str

    @classmethod
    def of(cls, output: CommittedOutput, why: str) -> Refused:
        """Return what is kept of an output."""
        return cls(output.message_id, output.type, output.business_id, why, output.handler)


class Publisher(Protocol):
    """Sends slices, one after another."""

    async def open(self, name: SliceName) -> bool:
        """Begin a slice. False when its marker is in the target: then it was sent, and is not sent again."""

    async def send(self, outputs: Sequence[CommittedOutput]) -> Sequence[Refused]:
        """Send the next outputs of the slice, in order for each business id; return those that are refused for good.

        Raises `TargetUnavailableError` when another attempt may succeed.
        """

    async def commit(self) -> None:
        """End the slice: in a target with transactions all of it is visible now, with its marker."""

    async def roll_back(self) -> None:
        """Drop what of the slice is not committed, where the target can."""

    async def close(self) -> None:
        """Give back connections. What is not committed is dropped."""


class Target(Protocol):
    """Where outputs are published to."""

    name: str
    """Its url without secrets."""

    identity: str
    """What tells it from other targets, and from the same one with other names for types."""

    promise: Promise
    chunk: int
    """How many outputs are sent, and noted as sent, at once."""

    publishers: int | None
    """How many publishers may work at once, None for as many as are asked for."""

    window: timedelta | None
    """For how long the target recognises what it has received; a slice is not resumed later than that."""

    async def prepare(self, types: Collection[str]) -> None:
        """Make what outputs of these types need, such as tables. Raises `UsageError` when they cannot be sent."""

    def publisher(self) -> Publisher:
        """Return a publisher, which is closed after use."""
