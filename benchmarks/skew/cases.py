"""The cases: how many messages, in how many games, in how many partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Case:
    """A batch of new messages. `partitions` is None where Spark has as many as always."""

    name: str
    sentence: str
    games: int
    turns: int
    partitions: int | None = None

    @property
    def messages(self) -> int:
        """How many messages there are."""
        return self.games * self.turns


_PER_GAME = 50


def cases(one_stream: int, one_partition: int, streams: int) -> Sequence[Case]:
    """Return the cases with so many messages."""
    return (
        Case("one-stream", "all messages are for one stream", 1, one_stream),
        Case(
            "one-partition",
            f"streams of {_PER_GAME} messages, all in one partition",
            max(1, one_partition // _PER_GAME),
            _PER_GAME,
            partitions=1,
        ),
        Case("many-streams", "a stream for each message", streams, 1),
    )


SIZES: Mapping[str, Sequence[Case]] = {
    "default": cases(150_000, 50_000, 20_000),
    "full": cases(2_000_000, 2_000_000, 1_000_000),
}
NAMES = tuple(case.name for case in SIZES["default"])
