"""What is measured of a batch: its time, and what it asked of the store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one or more batches.

    `visits` counts streams, once for each batch that they have messages in. `requests`, `bytes_read` and `bytes_sent`
    are those at the table port, and 0 where they were not counted. `outcomes` counts by status, or the reason of a
    dead letter. `facts` are further figures by name.
    """

    seconds: float
    messages: int
    visits: int
    outcomes: Mapping[str, int]
    requests: int = 0
    bytes_read: int = 0
    bytes_sent: int = 0
    facts: Mapping[str, float] = field(default_factory=dict)

    @property
    def microseconds(self) -> float:
        """The time of a message."""
        return self.seconds / self.messages * 1e6


def total(costs: Iterable[Cost]) -> Cost:
    """Return the cost of several batches one after another. Facts are those of the last."""
    every = list(costs)
    outcomes: Counter[str] = Counter()
    for cost in every:
        outcomes.update(cost.outcomes)
    return Cost(
        sum(cost.seconds for cost in every),
        sum(cost.messages for cost in every),
        sum(cost.visits for cost in every),
        dict(outcomes),
        sum(cost.requests for cost in every),
        sum(cost.bytes_read for cost in every),
        sum(cost.bytes_sent for cost in every),
        every[-1].facts,
    )
