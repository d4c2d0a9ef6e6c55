"""One stream with a long history, and the next messages for it."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from benchmarks.games import by_game, routed_batches
from benchmarks.growth.folding import Folding, expect
from benchmarks.growth.measurement import Cost
from benchmarks.growth.series import SizeBySize

_BATCH = 10_000
"""How many messages at a time made the history."""


class History(SizeBySize):
    """Adds messages to a stream that keeps more and more versions."""

    title = "New messages for a stream with a history"
    quantity = "versions kept in the stream"

    def prepare(self) -> None:
        """Make the longest history, and keep a copy at each size on the way."""
        folding = Folding(self.folder / "growing.db", counted=False)
        done = 0
        for size in sorted(self.plan.sizes):
            for messages in _history(done, size):
                expect(folding.fold(messages), Counter(processed=sum(each.num_rows for each in messages)))
            done = size
            folding.settle()
            shutil.copy(folding.file, self._copy(size))

    def measure(self, size: int, folder: Path, *, counted: bool) -> Cost:
        """Fold one batch of messages onto a copy of the history."""
        shutil.copy(self._copy(size), folder / "store.db")
        messages = list(routed_batches(by_game([0], range(size, size + self.plan.messages))))
        folding = Folding(folder / "store.db", counted=counted)
        cost = expect(folding.fold(messages), Counter(processed=self.plan.messages))
        if counted:
            folding.check(routed_batches(by_game([0], range(size + self.plan.messages))))
        return cost

    def _copy(self, size: int) -> Path:
        return self.folder / f"{size}.db"


def _history(first: int, end: int) -> Iterator[list[pa.RecordBatch]]:
    for start in range(first, end, _BATCH):
        yield list(routed_batches(by_game([0], range(start, min(start + _BATCH, end)))))
