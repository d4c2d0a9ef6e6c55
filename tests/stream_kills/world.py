"""A stream to be disturbed: its messages, its store, its folder of outcomes, and what is there when it has ended."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import NamedTuple, Self

from runtime.algorithms.choice import AlgorithmName
from runtime.spark.workers.connection import TablePlace
from samples.shooting_range.log import generate
from tests.faults.compared import Found, look
from tests.support.clocks import FrozenClock

NOW = FrozenClock.at("2026-03-01T12:00:00")
TABLE = "games"
FILES, OF_FIRST = 10, 5
"""How many files there are, each a micro-batch, and how many of them the first handlers get."""

ALGORITHMS: tuple[AlgorithmName, ...] = ("state-based", "state-based", "outbox", "deduplication-store")
"""Which algorithms are tried, the first one as often as the others together."""

_CHECKPOINT = re.compile(r"(checkpoint )[0-9a-f-]{36}")
_BEGUN = 1_767_225_600


class Shape(NamedTuple):
    """What a stream is like: the seed of its log, its algorithm, and how many epochs are merged."""

    seed: int
    algorithm: AlgorithmName = "state-based"
    compact_after: int = 1

    @classmethod
    def draw(cls, chance: Random) -> Self:
        """Return one at random."""
        return cls(chance.randrange(10**9), chance.choice(ALGORITHMS), chance.choice((1, 2)))


@dataclass(frozen=True)
class World:
    """A folder for a stream over a generated log, with duplicates in all files and a message that cannot be handled."""

    folder: Path
    shape: Shape

    @property
    def place(self) -> TablePlace:
        """Where its states are."""
        return TablePlace(f"sqlite:///{self.folder}/store.db", TABLE)

    @property
    def out(self) -> Path:
        """Where its outcomes are."""
        return self.folder / "kept" / "out"

    @property
    def incoming(self) -> Path:
        """Where its files are that have come."""
        return self.folder / "incoming"

    @property
    def checkpoint(self) -> Path:
        """Where Spark keeps how far it is."""
        return self.folder / "checkpoint"

    def begin(self) -> None:
        """Write the files: those that the first handlers get, and those that come later."""
        rows = [_line(row) for row in generate(4, 160, duplicates=0.3, shuffle=True, seed=self.shape.seed)]
        rows.append(json.dumps({"message_id": "mislaid", "type": "Mislaid", "body": {}}))
        for number in range(FILES):
            folder = self.incoming if number < OF_FIRST else self.folder / "later"
            folder.mkdir(exist_ok=True, parents=True)
            file = folder / f"{number}.jsonl"
            file.write_text("\n".join(rows[number::FILES]))
            os.utime(
                file, (_BEGUN + number, _BEGUN + number)
            )  # Spark takes files in the order of their times

    def let_the_rest_come(self) -> None:
        """Move the files that come later to where they are taken from, those that are still away."""
        for file in sorted((self.folder / "later").glob("*.jsonl")):
            file.rename(self.incoming / file.name)

    @property
    def commits(self) -> int:
        """How many epochs Spark has committed."""
        return len(self._committed())

    def forget_the_last_commit(self) -> bool:
        """Leave the checkpoint as when the driver dies after an epoch was published, before Spark knows of it."""
        epochs = self._committed()
        if not epochs:
            return False
        for name in (f"{max(epochs)}", f".{max(epochs)}.crc"):
            (self.checkpoint / "commits" / name).unlink(missing_ok=True)
        return True

    def _committed(self) -> list[int]:
        return [int(each.name) for each in (self.checkpoint / "commits").glob("*") if each.name.isdecimal()]

    def look(self) -> Found:
        """Return all rows of the table, all outcomes, and the files in which they are.

        How many files a round has depends on the partitions, which differ from start to start.
        """
        found = look(self.place, self.folder / "kept", self.out)
        rows = {key: _CHECKPOINT.sub(r"\1*", text) for key, text in found.rows.items()}
        return replace(found, rows=rows, files=sorted(set(found.files)))


def _line(row: dict[str, object]) -> str:
    return json.dumps(row, default=lambda time: time.isoformat())
