"""One stream that grows by a few messages at a time."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from benchmarks.games import by_game, game_id, routed_batches
from benchmarks.growth.folding import Folding, expect
from benchmarks.growth.measurement import Cost, total
from benchmarks.growth.series import Series
from benchmarks.shooting import HANDLER
from eventstore import Row, drive
from eventstore.limits import prepare_row
from runtime.versions.stream import versions


class SmallAppends(Series):
    """Runs many batches of 1 to 10 messages on one stream; a size is the number of batches that there were.

    The cost at a size is that of the batches since the size before. Its facts are what the stream is by then: rows,
    bytes for each message, and the time to read its whole history, for each message.
    """

    title = "Batches of 1 to 10 messages, one after another, on one stream"
    quantity = "batches so far"

    def turn(self, folder: Path, *, counted: bool) -> Iterator[tuple[int, Cost]]:
        """Run all batches once."""
        folder.mkdir(parents=True)
        folding = Folding(folder / "store.db", counted=counted)
        batch, turn = 0, 0
        for size in self.plan.sizes:
            costs: list[Cost] = []
            while batch < size:
                end = turn + 1 + (batch * 7) % self.plan.messages
                messages = list(routed_batches(by_game([0], range(turn, end))))
                costs.append(expect(folding.fold(messages), Counter(processed=end - turn)))
                batch, turn = batch + 1, end
            yield size, total([*costs, nothing(_stand(folding, turn))])
        if counted:
            folding.check(routed_batches(by_game([0], range(turn))))


def nothing(facts: Mapping[str, float]) -> Cost:
    """Return no cost, with facts."""
    return Cost(0, 0, 0, {}, facts=facts)


def _stand(folding: Folding, messages: int) -> Mapping[str, float]:
    table = folding.connection.table
    began = time.perf_counter()
    kept = drive(versions(table, HANDLER.name, game_id(0))) or []
    seconds = time.perf_counter() - began
    if len(kept) != messages:
        raise AssertionError("A read of the whole history gives all versions.")
    rows: list[Row] = list(drive(table.query(f"{HANDLER.name}-{game_id(0)}", "", "~")).rows)
    stored = sum(prepare_row(row.properties)[1] for row in rows)
    return {
        "rows": len(rows),
        "bytes_per_message": stored / messages,
        "read_microseconds": seconds / messages * 1e6,
    }
