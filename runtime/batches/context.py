"""What a batch decides for all its messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

HELD_BACK = "An earlier message of its stream is a dead letter, and the batch stops a stream there."
"""The error of a new message that is held back."""

FORGOTTEN = "Its business object was forgotten, and takes no message any more."
"""The error of a message to an object that was forgotten."""


@dataclass(frozen=True, slots=True)
class BatchContext:
    """What a batch decides for all its messages.

    `batch_id` is None when messages are processed one at a time. `finished` names the batches that are published
    or abandoned: the outputs of any other may be unpublished; None when that is not known. `is_cascade` says that
    the messages are outputs of this batch, whose times are the framework's own. `late` says what to do with a
    message that cannot be told from a duplicate, `on_error` whether later new messages of a stream are held back
    when one is a dead letter, `on_difference` whether a duplicate whose replay differs from what was recorded is a dead
    letter or fails the batch.
    """

    batch_id: str | None = None
    finished: frozenset[str] | None = None
    is_cascade: bool = False
    late: Literal["refuse", "process"] = "refuse"
    on_error: Literal["continue", "stop-stream"] = "continue"
    on_difference: Literal["dead-letter", "fail"] = "dead-letter"

    @property
    def stops_streams(self) -> bool:
        """Whether new messages of a stream are held back after a dead letter."""
        return self.on_error == "stop-stream"
