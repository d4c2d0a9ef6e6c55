"""Running a case: a log, a new store, a Spark session on two cores, and the memory of its workers, seen from /proc."""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Self

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from benchmarks.contender import DisagreementError, check
from benchmarks.contenders.stored import stored_states
from benchmarks.games import by_turn, log_batches, message
from benchmarks.shooting import TABLE, final_states
from eventstore import InterceptedTable, Operation, Table
from runtime.spark import build_session, run_batch
from samples.shooting_range import app


@dataclass(frozen=True, slots=True)
class Case:
    """A batch of new messages. `partitions` is None where Spark has as many as always."""

    name: str
    sentence: str
    games: int
    turns: int
    partitions: int | None = None

    @property
    def messages(self) -> int:
        """How many messages there are."""
        return self.games * self.turns


_PER_GAME = 50


def cases(one_stream: int, one_partition: int, streams: int) -> Sequence[Case]:
    """Return the cases with so many messages."""
    return (
        Case("one-stream", "all messages are for one stream", 1, one_stream),
        Case(
            "one-partition",
            f"streams of {_PER_GAME} messages, all in one partition",
            max(1, one_partition // _PER_GAME),
            _PER_GAME,
            partitions=1,
        ),
        Case("many-streams", "a stream for each message", streams, 1),
    )


SIZES: Mapping[str, Sequence[Case]] = {
    "default": cases(150_000, 50_000, 20_000),
    "full": cases(2_000_000, 2_000_000, 1_000_000),
}
NAMES = tuple(case.name for case in SIZES["default"])


_DAEMON = b"pyspark.daemon"
_PROC = Path("/proc")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_KIB = 1024


@dataclass(frozen=True, slots=True)
class Sample:
    """What the workers took at a moment, by process. `done` is how far the batch was.

    `resident` counts pages that are shared with other processes in full, `proportional` by their share of it; it is
    missing where it may not be read.
    """

    seconds: float
    done: int
    resident: Mapping[int, int]
    proportional: Mapping[int, int]

    @property
    def largest(self) -> int:
        """The resident bytes of the largest worker."""
        return max(self.resident.values(), default=0)


class Sampler:
    """Takes samples in a thread of its own, and a last one when it is stopped."""

    def __init__(self, done: Callable[[], int], every: float = 0.2) -> None:
        self.samples: list[Sample] = []
        self._began = time.monotonic()
        self._done = done
        self._every = every
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="memory", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._take()

    def _run(self) -> None:
        while not self._ended.wait(self._every):
            self._take()

    def _take(self) -> None:
        done = self._done()
        workers = list(python_workers(os.getpid()))
        resident = {pid: found for pid in workers if (found := _resident(pid)) is not None}
        proportional = {pid: found for pid in workers if (found := _proportional(pid)) is not None}
        self.samples.append(Sample(time.monotonic() - self._began, done, resident, proportional))


def python_workers(root: int) -> Iterator[int]:
    """Give the Python workers among the descendants of a process."""
    children: dict[int, list[int]] = {}
    for pid, parent in _parents():
        children.setdefault(parent, []).append(pid)
    waiting = [root]
    while waiting:
        parent = waiting.pop()
        found = children.get(parent, [])
        waiting += found
        if _is_daemon(parent):
            yield from (pid for pid in found if _is_daemon(pid))


def _parents() -> Iterator[tuple[int, int]]:
    for entry in os.scandir(_PROC):
        if entry.name.isdecimal() and (stat := _read(int(entry.name), "stat")) is not None:
            # The name of the program, in brackets, may hold anything.
            yield int(entry.name), int(stat.rpartition(b")")[2].split()[1])


def _is_daemon(pid: int) -> bool:
    return _DAEMON in (_read(pid, "cmdline") or b"")


def _resident(pid: int) -> int | None:
    statm = _read(pid, "statm")
    return int(statm.split()[1]) * _PAGE if statm else None


def _proportional(pid: int) -> int | None:
    for line in (_read(pid, "smaps_rollup") or b"").splitlines():
        name, _, value = line.partition(b":")
        if name == b"Pss":
            return int(value.split()[0]) * _KIB
    return None


def _read(pid: int, name: str) -> bytes | None:
    try:
        return (_PROC / str(pid) / name).read_bytes()
    except OSError:  # it has ended, or belongs to somebody else
        return None


@dataclass(frozen=True, slots=True)
class Transactions:
    """Is put around the tables of workers, and counts what they noted."""

    folder: Path

    def __call__(self, table: Table) -> Table:
        """Return the table, noted."""
        return _NotedTable(table, self.folder / f"{os.getpid()}-{uuid.uuid4().hex}")

    def count(self) -> int:
        """Return how many transactions there were so far."""
        return sum(entry.stat().st_size for entry in os.scandir(self.folder))


class _NotedTable(InterceptedTable):
    def __init__(self, table: Table, file: Path) -> None:
        super().__init__(table)
        self._notes = file.open("ab", buffering=0)

    async def transact(self, partition_key: str, operations: Sequence[Operation]) -> tuple[str, ...]:
        """Note the transaction when it is done."""
        etags = await super().transact(partition_key, operations)
        self._notes.write(b".")
        return etags


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
