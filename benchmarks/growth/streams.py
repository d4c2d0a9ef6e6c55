"""Long streams, and many streams."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from benchmarks.games import by_game, routed_batches
from benchmarks.growth.folding import Folding, expect
from benchmarks.growth.measurement import Cost, total
from benchmarks.growth.series import SizeBySize

PER_STREAM = 10
_AT_LEAST = 1_000


class MessagesPerStream(SizeBySize):
    """Puts the same number of messages into fewer and fewer streams."""

    title = "The same messages in fewer, longer streams"
    quantity = "messages per stream"

    def measure(self, size: int, folder: Path, *, counted: bool) -> Cost:
        """Fold all messages into new streams of this length."""
        messages = list(routed_batches(by_game(range(self.plan.messages // size), range(size))))
        folding = Folding(folder / "store.db", counted=counted)
        cost = expect(folding.fold(messages), Counter(processed=self.plan.messages // size * size))
        if counted:
            folding.check(messages)
        return cost


class StreamsPerBatch(SizeBySize):
    """Puts more and more streams into a batch, each with the same number of new messages."""

    title = "More streams in a batch, each with 10 messages"
    quantity = "streams per batch"

    def measure(self, size: int, folder: Path, *, counted: bool) -> Cost:
        """Fold a batch of so many new streams; where they are few, one batch after another."""
        times = max(1, min(_AT_LEAST, self.plan.messages) // (size * PER_STREAM))
        folding = Folding(folder / "store.db", counted=counted)
        batches = [
            list(routed_batches(by_game(range(number * size, (number + 1) * size), range(PER_STREAM))))
            for number in range(times)
        ]
        cost = total(folding.fold(messages) for messages in batches)
        if counted:
            folding.check(each for messages in batches for each in messages)
        return expect(cost, Counter(processed=times * size * PER_STREAM))
