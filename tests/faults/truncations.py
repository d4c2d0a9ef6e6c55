"""Truncations without Spark: the shipped job over ranges of streams, the lease, and the ledger that is pruned."""

from datetime import timedelta
from unittest.mock import patch

import pyarrow as pa

from eventstore.stream import split_streams
from runtime.algorithms.state_based.truncation import DAY
from runtime.batch_options import Wrap
from runtime.leases import CleanUpLease
from runtime.ledger.ledger import Ledger
from runtime.spark.scan import FOUND_SCHEMA, Task
from runtime.spark.truncation import TruncationJob, TruncationOptions
from runtime.spark.worker.connection import open_table
from runtime.versions import limits
from samples.shooting_range.log import BEGIN, generate
from tests.faults.marks import Phase
from tests.faults.without_spark import Partitions, noting_deaths
from tests.faults.world import NOW, World
from tests.support.clocks import FrozenClock

OLD = FrozenClock.at("2026-01-02T00:00:00")
AGE = 30 * DAY
_BATCHES = 4
_RANGES = pa.schema([(name, pa.string()) for name in ("prefix", "first", "before")])


class Truncated(World):
    """Streams of several runs each, all but the newest of which are cut."""

    def begin(self) -> None:
        """Process some batches, with a run for each commit, as after a year."""
        super().begin()
        with patch.object(limits, "MAX_SEGMENT_BYTES", 0):
            for number in range(_BATCHES):
                begin = BEGIN + timedelta(hours=number)
                rows = generate(self.shape.games, self.shape.messages, seed=self.shape.seed, begin=begin)
                self.run_batch(f"night-{number}", list(rows), OLD)

    def drive(self, wrap: Wrap) -> None:
        """Truncate, as a driver does; whoever held the lease before is dead, or as good as that."""
        self.prepare_driver()
        self.marks.phase = Phase.TRUNCATING
        connection = open_table(self.place.store, self.place.table)
        leases, ledger = CleanUpLease(connection.table, NOW), Ledger(connection.table, NOW)
        lease = connection.run(leases.take("campaign", take_over=True))
        open_batches, now = connection.run(ledger.open_batches()), NOW()
        options = TruncationOptions(older_than=AGE, clock=NOW, wrap=wrap)
        job = TruncationJob(options, now, open_batches, lease.token)
        ranges = connection.run(split_streams(connection.table, 2))
        rows = [{"prefix": each.prefix, "first": each.first, "before": each.before} for each in ranges]
        with noting_deaths(self.marks.count_death):
            tables = [pa.Table.from_pylist([row], _RANGES) for row in rows]
            Partitions(tables).mapInArrow(Task(job, self.place).run, FOUND_SCHEMA).collect()
        connection.run(ledger.prune(now - AGE))
        connection.run(leases.release(lease))
