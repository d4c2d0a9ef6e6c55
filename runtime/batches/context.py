"""What a batch decides for all its messages."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from runtime.batches.open_batches import BatchKey, OpenBatches
from runtime.messages.limits import USUAL, MessageLimits

HELD_BACK = "An earlier message of its stream is a dead letter, and the batch stops a stream there."
"""The error of a new message that is held back."""

FORGOTTEN = "Its business object was forgotten, and takes no message any more."
"""The error of a message to an object that was forgotten."""

PARKED = "Its stream is parked: an earlier message waits as a letter, to be redriven or given up."
"""The error of a message that a letter holds back."""


@dataclass(frozen=True, slots=True)
class BatchContext:
    """What a batch decides for all its messages.

    `batch_id` is None when messages are processed one at a time. `open_batches` are those whose outputs may be
    unpublished; None when that is not known. `is_cascade` says that the messages are outputs of this batch, whose times
    are the framework's own. `late` says what to do with a message that cannot be told from a duplicate, `on_error`
    whether later new messages of a stream are held back when one is a dead letter, in this batch or until it is
    redriven. `is_redrive` says that the messages are letters, which are handled again. `on_difference` says whether a
    duplicate whose replay differs from what was recorded is a dead letter or fails the batch. `number` is the batch's
    own, or that of a consumer's epoch. `limits` say how large a message may be.
    """

    batch_id: str | None = None
    open_batches: OpenBatches | None = None
    is_cascade: bool = False
    late: Literal["refuse", "process"] = "refuse"
    on_error: Literal["continue", "stop-stream", "park"] = "continue"
    is_redrive: bool = False
    on_difference: Literal["dead-letter", "fail"] = "dead-letter"
    number: int | None = None
    limits: MessageLimits = USUAL

    def redriving(self, open_batches: OpenBatches | None) -> BatchContext:
        """Return the same for letters, which are handled again beside open batches; None stands for no redrive."""
        return self if open_batches is None else replace(self, is_redrive=True, open_batches=open_batches)

    @property
    def key(self) -> BatchKey | None:
        """What versions and entries record of the batch, None for single messages."""
        return None if self.batch_id is None else BatchKey(self.batch_id, self.number)

    def is_ours(self, batch: str | None, number: int | None) -> bool:
        """Say whether a version is of this batch. One of an earlier batch with this id has another number, or none."""
        return batch is not None and batch == self.batch_id and number == self.number

    def is_finished(self, batch: str | None, number: int | None) -> bool:
        """Say whether the outputs of a version's batch are published, or never will be; also when that is not known.

        No batch publishes those of single messages.
        """
        return batch is None or self.open_batches is None or self.open_batches.is_finished(batch, number)

    @property
    def stops_streams(self) -> bool:
        """Whether new messages of a stream are held back after a dead letter."""
        return self.on_error != "continue"

    @property
    def parks_streams(self) -> bool:
        """Whether they are held back in later batches too."""
        return self.on_error == "park"
