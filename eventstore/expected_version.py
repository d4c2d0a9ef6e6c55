"""What a writer expects of a stream, beside a version."""

from __future__ import annotations

from enum import Enum


class ExpectedVersion(Enum):
    """What a stream is expected to be when no version is named.

    `ANY`: as it may be, there or not; costs a request to see. `EXISTS`: there, at any version. `EMPTY`: there, with no
    event so far. `NO_STREAM`: not there, the same as version 0.
    """

    ANY = "any"
    NO_STREAM = "no stream"
    EMPTY = "empty"
    EXISTS = "exists"

    @property
    def is_open(self) -> bool:
        """Whether writes of others do not matter, so that a write that they were in the way of is made again."""
        return self in (ExpectedVersion.ANY, ExpectedVersion.EXISTS)
