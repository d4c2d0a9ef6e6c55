"""How much work a run of the benchmarks is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Amount = Literal["batch", "azurite", "single", "article", "workflow", "client"]
"""The kinds of logs: whole batches, batches on Azurite, those of contenders that take one at a time, of clients."""

ONE_AT_A_TIME: frozenset[Amount] = frozenset({"single", "article", "workflow"})


@dataclass(frozen=True, slots=True)
class Size:
    """The numbers of messages by kind of log, all with the same number of messages in a stream."""

    name: str
    messages: Mapping[Amount, int]
    per_stream: int = 50
    runs: int = 3
    warm_up: int = 5_000
    duplicates: float = 0.0

    def streams(self, messages: int) -> int:
        """Return the number of streams of a log."""
        return max(1, messages // self.per_stream)


SIZES = {
    size.name: size
    for size in (
        Size(
            "default",
            {
                "batch": 50_000,
                "azurite": 50_000,
                "single": 1_000,
                "article": 500,
                "workflow": 200,
                "client": 1_000,
            },
        ),
        Size(
            "full",
            {
                "batch": 1_000_000,
                "azurite": 200_000,
                "single": 5_000,
                "article": 1_000,
                "workflow": 500,
                "client": 5_000,
            },
            warm_up=300_000,
        ),
    )
}
