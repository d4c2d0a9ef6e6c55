"""The truncation of one table of very many streams: run in a process of its own, which imports it by its name."""

from __future__ import annotations

import asyncio
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.azurite import Azurite
from benchmarks.cleanup.streams import RUNS, fill
from benchmarks.contender import DisagreementError
from benchmarks.shooting import TABLE
from benchmarks.skew.memory import Sampler
from runtime.algorithms.state_based.truncation import DAY
from runtime.spark import build_session, truncate

_MB = 10**6
_KIB = 1024


@dataclass(frozen=True, slots=True)
class Found:
    """What the truncation of a table took: time, requests, and at most how much memory in a worker and the driver."""

    store: str
    streams: int
    rows: int
    requests: int
    seconds: float
    worker_mb: float
    driver_mb: float

    @property
    def requests_per_row(self) -> float:
        """How many requests each deleted row took."""
        return self.requests / self.rows


def run(store: str, streams: int, folder: Path) -> Found:
    """Fill a table and truncate it. Raises `DisagreementError` when something else than all old runs was cut."""
    with _store(store, folder) as url:
        asyncio.run(fill(url, TABLE, streams))
        spark = build_session("local[2]", log_file=folder / "spark.log")
        try:
            began = time.perf_counter()
            with Sampler(lambda: 0) as sampler:
                done = truncate(spark, store=url, table=TABLE, older_than=DAY, acknowledged_after=0)
            seconds = time.perf_counter() - began
        finally:
            spark.stop()
    (count,) = done.counts
    if (count.streams, count.cut, count.runs) != (streams, streams, RUNS * streams):
        problem = f"Of {streams:,} streams with {RUNS} old runs each, {count} was cut."
        raise DisagreementError(problem)
    worker = max(sample.largest for sample in sampler.samples) / _MB
    driver = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _KIB / _MB
    return Found(store, streams, count.rows, done.requests, seconds, worker, driver)


@contextmanager
def _store(name: str, folder: Path) -> Iterator[str]:
    if name == "sqlite":
        yield f"sqlite:///{folder / 'store.db'}"
        return
    azurite = Azurite(folder)
    try:
        yield azurite.url
    finally:
        azurite.stop()
