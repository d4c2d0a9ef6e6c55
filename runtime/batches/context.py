"""What a batch decides for all its messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

HELD_BACK = "An earlier message of its stream is a dead letter, and the batch stops a stream there."
"""The error of a new message that is held back."""

PARKED = "Its stream is parked: an earlier message waits as a letter, to be redriven or given up."
"""The error of a message that a letter holds back."""


@dataclass(frozen=True, slots=True)
class BatchContext:
    """What a batch decides for all its messages.

    `batch_id` is None when messages are processed one at a time. `finished` names the batches that are published
    or abandoned: the outputs of any other may be unpublished; None when that is not known. `is_cascade` says that
    the messages are outputs of this batch, whose times are the framework's own. `late` says what to do with a
    message that cannot be told from a duplicate, `on_error` whether later new messages of a stream are held back
    when one is a dead letter, in this batch or until it is redriven. `is_redrive` says that the messages are letters,
    which are handled again. `on_difference` whether a duplicate whose replay differs from what was recorded is a dead
    letter or fails the batch.
    """

    batch_id: str | None = None
    finished: frozenset[str] | None = None
    is_cascade: bool = False
    late: Literal["refuse", "process"] = "refuse"
    on_error: Literal["continue", "stop-stream", "park"] = "continue"
    is_redrive: bool = False
    on_difference: Literal["dead-letter", "fail"] = "dead-letter"

    @property
    def stops_streams(self) -> bool:
        """Whether new messages of a stream are held back after a dead letter."""
        return self.on_error != "continue"

    @property
    def parks_streams(self) -> bool:
        """Whether they are held back in later batches too."""
        return self.on_error == "park"
