"""Comparison of two runs: digests of all outputs, and of all states."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from eventstore import Table
from runtime.storage.listing import summaries

if TYPE_CHECKING:
    from runtime.spark.rounds import BatchResult

_DIGITS_SHOWN = 16

OUTPUT_COLUMNS = ("message_id", "type", "body", "sequence", "enqueued_at", "headers")


@dataclass(frozen=True, slots=True)
class OutputDigest:
    """How many outputs a batch published, and the SHA-256 of their sorted rows: all columns of all of them."""

    count: int
    sha256: str

    @classmethod
    def of(cls, result: BatchResult) -> OutputDigest:
        """Read the outputs of a batch that is small enough to be held in memory."""
        from runtime.spark import outputs
        from runtime.spark.summaries import rows_of

        lines = sorted(_line(row) for row in rows_of(outputs(result.outcomes), *OUTPUT_COLUMNS))
        return cls(len(lines), sha256("\n".join(lines).encode()).hexdigest())


@dataclass(frozen=True, slots=True)
class StateDigest:
    """How many streams and state versions a table has, and the SHA-256 of all heads: states, versions and times."""

    streams: int
    versions: int
    sha256: str

    @classmethod
    async def of(cls, table: Table) -> StateDigest:
        """Read the header of each stream, in the order of their keys. One request for each 1,000."""
        digest, streams, versions = sha256(), 0, 0
        async for summary in summaries(table):
            digest.update(repr((summary.key, summary.runs, summary.head)).encode())
            streams += 1
            versions += summary.head.versions
        return cls(streams, versions, digest.hexdigest())


@dataclass(frozen=True, slots=True)
class Comparison:
    """What the first run and the second one gave."""

    outputs: tuple[OutputDigest, OutputDigest]
    states: tuple[StateDigest, StateDigest]

    @property
    def same_outputs(self) -> bool:
        """Whether the outputs are identical, byte for byte."""
        return self.outputs[0] == self.outputs[1]

    @property
    def same_states(self) -> bool:
        """Whether no stream has changed."""
        return self.states[0] == self.states[1]

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """Give what is compared: its name, the first run's, the second run's, and whether they are the same."""
        for title, first, second in (
            ("outputs", *(each.count for each in self.outputs)),
            ("SHA-256 of all outputs", *(_short(each.sha256) for each in self.outputs)),
            ("streams", *(each.streams for each in self.states)),
            ("state versions", *(each.versions for each in self.states)),
            ("SHA-256 of all states", *(_short(each.sha256) for each in self.states)),
        ):
            yield title, first, second, "yes" if first == second else "NO"


def _short(digest: str) -> str:
    return f"{digest[:_DIGITS_SHOWN]}..."


def _line(row: dict[str, object]) -> str:
    return json.dumps(row, default=str, ensure_ascii=False, sort_keys=True)
