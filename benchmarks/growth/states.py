"""States that are small, large, and too large."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa

from benchmarks.games import routed_like
from benchmarks.growth import pages
from benchmarks.growth.folding import Cost, Folding, SizeBySize, expect
from runtime.versions.limits import MAX_STATE_BYTES

_STREAMS = 4


class StateSize(SizeBySize):
    """Gives each stream a larger state, of which each message changes 20 characters.

    A state over the limit is not stored: each of its messages is a dead letter. Work is the bytes of the states.
    """

    title = "Larger states, of which each message changes 20 characters"
    quantity = "bytes of the state"
    work_is_size = True

    def measure(self, size: int, folder: Path, *, counted: bool) -> Cost:
        """Fold a batch onto streams that have states of this size already."""
        folding = Folding(folder / "store.db", pages.app, counted=counted)
        outcome = "processed" if size <= MAX_STATE_BYTES else "state_too_large"
        expect(folding.fold(page_batches(size, range(1))), Counter({outcome: _STREAMS}))
        numbers = range(1, 1 + self.plan.messages // _STREAMS)
        cost = folding.fold(page_batches(size, numbers))
        return expect(cost, Counter({outcome: _STREAMS * len(numbers)}))


def page_batches(size: int, numbers: range) -> list[pa.RecordBatch]:
    """Return messages of these numbers for each page."""
    names = [f"page-{number}" for number in range(_STREAMS)]
    return [
        routed_like([name] * len(numbers), "Pages", [pages.write(name, number, size) for number in numbers])
        for name in names
    ]
