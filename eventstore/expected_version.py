"""What a writer expects of a stream, beside a version."""

from __future__ import annotations

from enum import Enum


class ExpectedVersion(Enum):
    """What a stream is expected to be when no version is named.

    `ANY`: as it may be, there or not; costs a request to see. `NO_STREAM`: not there, the same as version 0.
    `EMPTY`: there, with no event so far.
    """

    ANY = "any"
    NO_STREAM = "no stream"
    EMPTY = "empty"
