"""What a worker knows of its batch: its context, the batches that are open, and its limit of dead letters."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Literal, NamedTuple

from runtime.errors import UsageError
from runtime.messages.envelope import IdKey, id_key
from runtime.messages.limits import USUAL, MessageLimits
from runtime.messages.outcome import Outcome, Status


class BatchKey(NamedTuple):
    """Names a batch: its id, and the number that it began with, None where the ledger has none."""

    batch_id: str
    number: int | None = None


POSITION = "@"
"""Prefix of the positions that versions of a consumer record as their batch: the deliveries that made them."""


@dataclass(frozen=True, slots=True)
class OpenBatches:
    """The batches that may still publish: those with one of these `numbers`, and all from number `next` on."""

    next: int = 1
    numbers: frozenset[int] = frozenset()

    def is_finished(self, batch: str | None, number: int | None) -> bool:  # noqa: ARG002 - the number decides
        """Return whether a batch publishes nothing more, by its number: an id may be used again after pruning."""
        return number is None or (number < self.next and number not in self.numbers)


# Errors of dead letters.
HELD_BACK = "An earlier message of its stream is a dead letter, and the batch stops a stream there."
FORGOTTEN = "Its business object was forgotten, and takes no message any more."
PARKED = "Its stream is parked: an earlier message waits as a letter, to be redriven or given up."


@dataclass(frozen=True, slots=True)
class BatchContext:
    """The decisions of a batch for all its messages."""

    batch_id: str | None = None  # None for single messages
    open_batches: OpenBatches | None = None  # their outputs may be unpublished; None if they are not known
    is_cascade: bool = False  # whether the messages are outputs of this batch, with times of the framework
    late: Literal["refuse", "process"] = "refuse"
    """What happens to a message that cannot be told from a duplicate."""
    on_error: Literal["continue", "stop-stream", "park"] = "continue"
    """Whether a dead letter holds back new messages of its stream, in this batch or until it is redriven."""
    is_redrive: bool = False  # whether the messages are letters, which are handled again
    on_difference: Literal["dead-letter", "fail"] = "dead-letter"
    """What becomes of a duplicate whose replay differs from its record."""
    number: int | None = None  # the batch's own, or that of a consumer's epoch
    limits: MessageLimits = USUAL

    def redriving(self, open_batches: OpenBatches | None) -> BatchContext:
        """Return the context of a redrive beside open batches; the same context for None."""
        return self if open_batches is None else replace(self, is_redrive=True, open_batches=open_batches)

    @property
    def key(self) -> BatchKey | None:
        """What versions and entries record of the batch, None for single messages."""
        return None if self.batch_id is None else BatchKey(self.batch_id, self.number)

    def is_ours(self, batch: str | None, number: int | None) -> bool:
        """Return whether a version is of this batch, not of an earlier one with the same id."""
        return batch is not None and batch == self.batch_id and number == self.number

    def is_finished(self, batch: str | None, number: int | None) -> bool:
        """Return whether a version's batch publishes nothing more. True for single messages, and if that is unknown."""
        return batch is None or self.open_batches is None or self.open_batches.is_finished(batch, number)

    @property
    def stops_streams(self) -> bool:
        """Whether new messages of a stream are held back after a dead letter."""
        return self.on_error != "continue"


_FORM = re.compile(r"(\d{1,18})|(\d{1,3}(?:\.\d{1,9})?)%")

HELD_BACK_MARKER = "_held-back"
"""The name of an empty file in the folder of a batch that is held back; Spark passes over it."""


@dataclass(frozen=True, slots=True)
class DeadLetterLimit:
    """A number of deliveries, or a share of all in percent."""

    text: str
    most: float
    is_share: bool

    @classmethod
    def parse(cls, text: str) -> DeadLetterLimit:
        """Return the limit that a text such as `10` or `0.5%` means. Raises `UsageError` for another text."""
        match = _FORM.fullmatch(text.strip())
        if match is None or (match[2] and float(match[2]) > 100):  # noqa: PLR2004 - percent
            raise UsageError(
                f"{text!r} is no number of dead letters: write one such as 10, or a share such as 0.5%."
            )
        return cls(match[0], float(match[1] or match[2]), match[1] is None)

    def is_exceeded(self, counts: Mapping[str, int]) -> bool:
        """Return whether a batch with these counts of outcomes by status has more."""
        dead = counts.get(Status.DEAD_LETTER, 0)
        if self.is_share:
            return 100 * dead > self.most * sum(counts.get(status, 0) for status in Status)
        return dead > self.most

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Seen:
    """What earlier deliveries of a stream in this batch have decided for later ones.

    `delivered` are the messages that had their first delivery, which alone has their outputs. `dead_letter` says that a
    delivery was a dead letter: new messages after it are held back in a batch that stops a stream there.
    """

    delivered: Collection[IdKey] = frozenset()
    dead_letter: bool = False

    def after(self, outcomes: Sequence[Outcome]) -> Seen:
        """Return this with the decisions of more outcomes."""
        delivered = {id_key(each.envelope.message_id) for each in outcomes if each.version is not None}
        dead_letter = self.dead_letter or any(outcome.is_dead_letter for outcome in outcomes)
        return Seen({*self.delivered, *delivered}, dead_letter)

    def between_groups(self, outcomes: Sequence[Outcome]) -> Seen:
        """Return the decisions for the next group: only the last message may have more copies there."""
        last = outcomes[-1].envelope.message_id
        copies = list(takewhile(lambda outcome: outcome.envelope.message_id == last, reversed(outcomes)))
        return replace(self.after(outcomes), delivered=self.after(copies).delivered)


NOTHING = Seen()  # what has been seen when a stream begins
