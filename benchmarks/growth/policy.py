"""One stream under a policy of truncation, day after day."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from benchmarks.games import by_game, game_id, routed_batches
from benchmarks.growth.appends import nothing
from benchmarks.growth.folding import Folding, expect
from benchmarks.growth.measurement import Cost, total
from benchmarks.growth.series import Series
from benchmarks.shooting import HANDLER
from eventstore import Row, Table, drive
from eventstore.limits import prepare_row
from runtime.algorithms.state_based.truncation import DAY, PolicyRules, truncate_stream
from runtime.clock import to_microseconds
from runtime.ledger.batch import OpenBatches
from runtime.retries import RetryPolicy
from runtime.versions.stream import versions
from samples.shooting_range.log import BEGIN

POLICY = PolicyRules(older_than=30 * DAY, keep_last=1)
_MESSAGES_A_DAY = 10


class UnderPolicy(Series):
    """Runs a batch each day on one stream, and a truncation by the policy after it; a size is the number of days.

    The cost at a size is that of the batches since the size before. Its facts are what the stream is by then: versions,
    rows, and bytes.
    """

    title = "A batch and a truncation each day: 30 days are kept"
    quantity = "days so far"

    def turn(self, folder: Path, *, counted: bool) -> Iterator[tuple[int, Cost]]:
        """Run all days once."""
        folder.mkdir(parents=True)
        now = to_microseconds(BEGIN)
        folding = Folding(folder / "store.db", counted=counted, clock=lambda: now)
        day = 0
        for size in self.plan.sizes:
            costs: list[Cost] = []
            while day < size:
                now += DAY
                turns = range(day * _MESSAGES_A_DAY, (day + 1) * _MESSAGES_A_DAY)
                messages = list(routed_batches(by_game([0], turns)))
                costs.append(expect(folding.fold(messages), Counter(processed=_MESSAGES_A_DAY)))
                _truncate(folding.connection.table, now)
                day += 1
            yield size, total([*costs, nothing(_stand(folding.connection.table))])


def _truncate(table: Table, now: int) -> None:
    rules = POLICY.as_of(now, OpenBatches())
    drive(truncate_stream(table, f"{HANDLER.name}-{game_id(0)}", rules, RetryPolicy()))


def _stand(table: Table) -> Mapping[str, float]:
    kept = drive(versions(table, HANDLER.name, game_id(0))) or []
    rows: list[Row] = list(drive(table.query(f"{HANDLER.name}-{game_id(0)}", "", "~")).rows)
    stored = sum(prepare_row(row.properties)[1] for row in rows)
    return {"rows": len(rows), "versions": len(kept), "stored_bytes": stored}
