"""What is known of a stream: the value that each verb takes and gives back, without the verbs.

The verbs are in `eventstore.stream`, in a class on top of this one. What carries them out knows only the value,
and gives back one of the class that it was given.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from eventstore.partition import Partition
from eventstore.port import Properties
from eventstore.properties import FrozenProperties, stream_properties


@dataclass(frozen=True, slots=True)
class StreamValue:
    """The place of a stream, and its header as it was read or written; *transient* without an ETag."""

    partition: Partition
    etag: str | None = None
    version: int = 0
    first_version: int = 0
    """The low watermark: the version of the first event that has not been cut away.

    0 when it is not known, in a value that was restored without it; 1 in a transient one.
    """
    properties: Properties | None = None
    """The stream's own properties, None when they were not read."""
    partial: bool = False
    """True when only some of the properties were read; a write keeps the others then."""

    def __post_init__(self) -> None:
        if self.properties is not None and type(self.properties) is not FrozenProperties:
            object.__setattr__(self, "properties", stream_properties(self.properties))
        if self.etag is None and not self.first_version:
            object.__setattr__(self, "first_version", 1)


StreamT = TypeVar("StreamT", bound=StreamValue)
StreamT_co = TypeVar("StreamT_co", bound=StreamValue, covariant=True)
