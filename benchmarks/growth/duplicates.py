"""Streams with a history, and a batch of which a share is known already."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from benchmarks.games import Turn, routed_batches
from benchmarks.growth.folding import Folding, expect
from benchmarks.growth.measurement import Cost
from benchmarks.growth.series import SizeBySize

_PER_STREAM = 500
"""More than a tail takes: the known versions are in runs, as most are."""


class Duplicates(SizeBySize):
    """Replaces more and more of a batch's messages with copies of stored ones."""

    title = "A batch of which a share are duplicates"
    quantity = "duplicates in the batch (%)"
    most = 2.0

    def prepare(self) -> None:
        """Store the messages that will be redelivered."""
        folding = Folding(self.folder / "before.db", counted=False)
        expect(folding.fold(list(routed_batches(self._batch(0)))), Counter(processed=self._messages))
        folding.settle()

    def measure(self, size: int, folder: Path, *, counted: bool) -> Cost:
        """Fold a batch with this share, in percent, in each stream."""
        shutil.copy(self.folder / "before.db", folder / "store.db")
        new = _PER_STREAM * (100 - size) // 100
        messages = list(routed_batches(self._batch(new)))
        folding = Folding(folder / "store.db", counted=counted)
        processed = new * self._streams
        ends = Counter(processed=processed, duplicate=self._messages - processed)
        cost = expect(folding.fold(messages), ends)
        if counted:
            folding.check(routed_batches(self._all(new)))
        return cost

    @property
    def _streams(self) -> int:
        return max(1, self.plan.messages // _PER_STREAM)

    @property
    def _messages(self) -> int:
        return self._streams * _PER_STREAM

    def _batch(self, new: int) -> Iterator[Turn]:
        """Give each stream the last of its stored messages again, and then new ones."""
        return ((game, turn) for game in range(self._streams) for turn in range(new, new + _PER_STREAM))

    def _all(self, new: int) -> Iterator[Turn]:
        return ((game, turn) for game in range(self._streams) for turn in range(_PER_STREAM + new))
