"""Running one case: a log, a new store, a Spark session on two cores, and the sampler beside them."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from benchmarks.contender import DisagreementError, check
from benchmarks.contenders.stored import stored_states
from benchmarks.games import by_turn, log_batches, message
from benchmarks.shooting import TABLE, final_states
from benchmarks.skew.cases import Case
from benchmarks.skew.memory import Sample, Sampler
from benchmarks.skew.transactions import Transactions
from runtime.spark import build_session, run_batch
from samples.shooting_range import app

MASTER = "local[2]"
_BATCHES_IN_A_GROUP = 32
_QUARTERS = 4
_MB = 10**6


@dataclass(frozen=True, slots=True)
class Found:
    """A case that was run: how long the batch took, its transactions, and the workers' memory on the way."""

    case: Case
    seconds: float
    transactions: int
    samples: Sequence[Sample]

    @property
    def rate(self) -> float:
        """Messages per second."""
        return self.case.messages / self.seconds

    @property
    def peak(self) -> float:
        """The most that a worker took, in MB, shared pages included."""
        return max((sample.largest for sample in self.samples), default=0) / _MB

    @property
    def peak_proportional(self) -> float | None:
        """The most that a worker took of its own share, in MB; None where that cannot be read."""
        found = [size for sample in self.samples for size in sample.proportional.values()]
        return max(found) / _MB if found else None

    @property
    def quarters(self) -> Sequence[float | None]:
        """The most that a worker took in each quarter of the transactions, in MB; None where no sample was taken."""
        largest: list[int | None] = [None] * _QUARTERS
        for sample in self.samples:
            quarter = min(_QUARTERS * sample.done // max(1, self.transactions), _QUARTERS - 1)
            largest[quarter] = max(largest[quarter] or 0, sample.largest)
        return [None if size is None else size / _MB for size in largest]


def run_case(case: Case, folder: Path) -> Found:
    """Run a case in this process. Raises `DisagreementError` when its outcomes or states are not right."""
    log, store = folder / "messages.parquet", f"sqlite:///{folder / 'store.db'}"
    _write(case, log)
    notes = Transactions(folder / "transactions")
    notes.folder.mkdir()
    os.environ["SPARK_LOCAL_DIRS"] = str(folder / "spark")
    spark = build_session(MASTER, log_file=folder / "spark.log")
    try:
        began = time.perf_counter()
        with Sampler(notes.count) as sampler:
            out = str(folder / "out")
            outcomes = run_batch(
                spark,
                str(log),
                app,
                store=store,
                table=TABLE,
                out=out,
                partitions=case.partitions,
                wrap=notes,
            )
            seconds = time.perf_counter() - began
        check_outcomes(case, *_count(outcomes))
    finally:
        spark.stop()
    turns = by_turn(range(case.games), range(case.turns))
    check(stored_states(store), final_states(message(game, turn) for game, turn in turns), case.name)
    return Found(case, seconds, notes.count(), sampler.samples)


def _write(case: Case, path: Path) -> None:
    batches = log_batches(by_turn(range(case.games), range(case.turns)))
    first = next(batches)
    with pq.ParquetWriter(path, first.schema) as writer:
        writer.write_batch(first)
        while group := list(islice(batches, _BATCHES_IN_A_GROUP)):
            writer.write_table(pa.Table.from_batches(group))


def _count(outcomes: DataFrame) -> tuple[Mapping[str, int], Mapping[int, int]]:
    """Count the outcomes by status, and the streams by their newest version."""
    statuses = outcomes.groupBy("status").count().collect()
    newest = outcomes.groupBy("business_id").agg(sf.max("version").alias("newest"))
    versions = newest.groupBy("newest").count().collect()
    return {row["status"]: row["count"] for row in statuses}, {
        row["newest"]: row["count"] for row in versions
    }


def check_outcomes(case: Case, statuses: Mapping[str, int], versions: Mapping[int, int]) -> None:
    """Raise `DisagreementError` unless each message is processed once, as the next version of its stream."""
    if statuses != {"processed": case.messages}:
        problem = (
            f"{case.name}: the outcomes are {statuses}, but {case.messages} messages are to be processed."
        )
        raise DisagreementError(problem)
    if versions != {case.turns: case.games}:
        problem = (
            f"{case.name}: streams by their newest version are {versions}, but all {case.games} should have "
            f"{case.turns}."
        )
        raise DisagreementError(problem)
