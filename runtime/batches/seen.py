"""Seen: what earlier deliveries of a stream in this batch have decided for later ones."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import takewhile

from runtime.messages.message_ids import IdKey, id_key
from runtime.messages.outcome import Outcome


@dataclass(frozen=True, slots=True)
class Seen:
    """What has been seen of a stream in this batch.

    `delivered` are the messages that had their first delivery, which alone has their outputs. `dead_letter` says that a
    delivery was a dead letter: new messages after it are held back in a batch that stops a stream there.
    """

    delivered: Collection[IdKey] = frozenset()
    dead_letter: bool = False

    def after(self, outcomes: Sequence[Outcome]) -> Seen:
        """Return what has been seen after these outcomes too."""
        delivered = {id_key(each.envelope.message_id) for each in outcomes if each.version is not None}
        return Seen(
            {*self.delivered, *delivered},
            self.dead_letter or any(outcome.is_dead_letter for outcome in outcomes),
        )

    def between_groups(self, outcomes: Sequence[Outcome]) -> Seen:
        """Return what the next group of the stream has to know, after the outcomes of a whole group.

        Copies of a message are adjacent, so only the last message may have more copies in the next group.
        """
        last = outcomes[-1].envelope.message_id
        copies = list(takewhile(lambda outcome: outcome.envelope.message_id == last, reversed(outcomes)))
        delivered = Seen(self.delivered).after(copies).delivered
        return Seen(delivered, self.dead_letter or any(outcome.is_dead_letter for outcome in outcomes))


NOTHING = Seen()
"""What has been seen when a stream begins."""
