"""Whether a stream costs more as its epochs grow in number: `python -m benchmarks epochs`.

Ten thousand epochs of Spark would take hours, in which it does most of the work. So this runs without it what is
shipped: micro-batches, admission, rounds, folds, ledger and folders. Checkpoints are written as Spark writes them, and
messages are routed by a few lines of Python. The first fifth of the epochs is set beside the last: the requests of the
driver to the store and the rows that they gave, operations on files, the time, and the memory of the process. With
`--document` the table is written to a page.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, NamedTuple, cast
from unittest.mock import patch

import typer

from eventstore import InterceptedTable, Page
from runtime.batch_options import BatchOptions, TablePlace
from runtime.file_systems import Folder
from runtime.spark.batch import Work
from runtime.spark.worker.connection import Connection
from runtime.spark.worker.job import FoldJob
from samples.shooting_range import app
from samples.shooting_range.log import generate
from tests.faults.without_spark import (
    NO_SPARK,
    BatchWithoutSpark,
    Collected,
    Partitions,
    Row,
    StreamWithoutSpark,
    Task,
)
from tests.support.campaigns import rewrite
from tests.support.checkpoints import WrittenCheckpoint

MARK = "epochs"
_QUERY, _TABLE = "endless", "games"
_IN_MEMORY = Path("/dev/shm")  # noqa: S108 - a folder of its own is made there
_SPARK_KEEPS, _SPARK_COMPACTS = 100, 10
_MEGABYTE = 2**20
_OPERATIONS = (
    "names", "sizes", "paths", "is_folder", "exists", "create", "delete", "delete_if_empty", "move_to", "move_file",
    "copy_file", "delete_file", "read", "write", "size", "flush",
)  # fmt: skip


SHOWN = {
    "requests": "requests of the driver to the store",
    "rows": "rows that these gave",
    "operations": "operations on files and folders",
    "milliseconds": "milliseconds",
    "megabytes": "memory of the process, MB",
}


class Cost(NamedTuple):
    """What an epoch took, and the memory of the process after it."""

    requests: int
    rows: int
    operations: int
    milliseconds: float
    megabytes: float


@dataclass(frozen=True)
class Here(Partitions):
    """Partitions that are run in this process, one after another."""

    def collect(self) -> list[Collected]:
        """Run the function over each."""
        return [Collected(row) for table in self.tables for row in Task(self.run, table)()]


@dataclass(frozen=True)
class RoundsHere(BatchWithoutSpark):
    """Rounds of which the messages are handled in this process."""

    def work_on(self, messages: Sequence[Row], job: FoldJob) -> Work:
        """Return what gives the outcomes of messages."""
        work = super().work_on(messages, job)
        return work._replace(rows=cast("Any", Here(cast("Partitions", work.rows).tables)))


@dataclass
class Epochs(StreamWithoutSpark):
    """Micro-batches that are handled in this process, with what the driver asks of the store counted."""

    requests: int = field(default=0, init=False)
    rows: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._connection = Connection(self.place)
        self._connection.table = InterceptedTable(self._connection.table, after=self._count)

    def close(self) -> None:
        """Give the connection back."""
        self._connection.close()

    def _count(self, name: str, _: str, __: int, result: object) -> None:
        if name != "barrier":
            self.requests += 1
            self.rows += (
                len(result.rows) if isinstance(result, Page) else name == "get" and result is not None
            )

    def _rounds(self, messages: Any) -> RoundsHere:  # noqa: ANN401 - no DataFrame
        out = self.places.working
        return RoundsHere(NO_SPARK, self.app, self.place, out, self.options, self._connection, messages)


@dataclass
class Planned:
    """A checkpoint over files, one for each epoch, written and cleaned up as Spark does."""

    written: WrittenCheckpoint
    _files: list[tuple[int, str]] = field(default_factory=list)

    def plan(self, epoch: int) -> None:
        """Write what Spark writes before it hands an epoch over, and delete what it deletes."""
        incoming = self.written.folder.parent / "incoming"
        incoming.mkdir(exist_ok=True)
        (incoming / f"{epoch:06}.jsonl").touch()
        name = (incoming / f"{epoch:06}.jsonl").as_uri()
        self._files.append((epoch, name))
        self.written.plan_files(epoch, name)
        if epoch % _SPARK_COMPACTS == _SPARK_COMPACTS - 1:
            self.written.unlist_files(str(epoch))
            self.written.list_files(f"{epoch}.compact", self._files)
        if epoch >= _SPARK_KEEPS:
            (self.written.folder / "offsets" / str(epoch - _SPARK_KEEPS)).unlink()
            old = epoch - _SPARK_KEEPS
            self.written.unlist_files(
                f"{old}.compact" if old % _SPARK_COMPACTS == _SPARK_COMPACTS - 1 else str(old)
            )


def run(folder: Path, epochs: int, messages: int, compact_after: int) -> list[Cost]:
    """Run so many epochs of so many messages, a cascade each, and return what each of them took.

    As in a driver of Spark, it is not the main thread that does it, in which the handlers would be supervised.
    """
    with ThreadPoolExecutor(1) as executor:
        return executor.submit(_run, folder, epochs, messages, compact_after).result()


def _run(folder: Path, epochs: int, messages: int, compact_after: int) -> list[Cost]:
    place = TablePlace(f"sqlite:///{folder}/store.db", _TABLE)
    checkpoint = Planned(WrittenCheckpoint.begun(folder / "checkpoint"))
    options, out = BatchOptions(cascade=True, partitions=1), str(folder / "out")
    work = Epochs(app, place, out, _QUERY, checkpoint.written.read.url, compact_after, options)
    log = generate(max(1, epochs * messages // 20), epochs * messages)
    costs = []
    with _operations() as operations:
        for epoch in range(epochs):
            some = [next(log) for _ in range(messages)]
            checkpoint.plan(epoch)
            before, begun = (work.requests, work.rows, operations.total()), time.perf_counter()
            work(cast("Any", some), epoch)
            seconds = time.perf_counter() - begun
            now = (work.requests, work.rows, operations.total())
            requests, rows, counted = (after - earlier for after, earlier in zip(now, before, strict=True))
            costs.append(Cost(requests, rows, counted, seconds * 1_000, _memory()))
    work.close()
    return costs


@contextmanager
def _operations() -> Iterator[Counter[str]]:
    """Count the calls of folders."""
    counts: Counter[str] = Counter()

    def counting(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*given: Any, **named: Any) -> Any:  # noqa: ANN401 - as of any method
            counts[name] += 1
            return call(*given, **named)

        return counted

    with ExitStack() as stack:
        for name in _OPERATIONS:
            stack.enter_context(patch.object(Folder, name, counting(name, getattr(Folder, name))))
        yield counts


def _memory() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / _MEGABYTE


def table(costs: Sequence[Cost], folder: Path, compact_after: int) -> Iterator[str]:
    """Give the lines of the table: medians and 99th percentiles of the first fifth of the epochs and of the last."""
    fifth = max(2, len(costs) // 5)
    yield f"| of {len(costs):,} epochs | first fifth: p50 | p99 | last fifth: p50 | p99 |"
    yield "|---|---:|---:|---:|---:|"
    for name, shown in SHOWN.items():
        values = [float(getattr(each, name)) for each in costs]
        ends = (values[:fifth], values[-fifth:])
        cells = [
            f"{value:,.0f}"
            for some in ends
            for value in (statistics.median(some), statistics.quantiles(some, n=100, method="inclusive")[98])
        ]
        yield f"| {shown} | {' | '.join(cells)} |"
    yield ""
    outcomes, checkpoint = _files(folder / "out", ".parquet"), _files(folder / "checkpoint")
    left = f"With `--compact-after {compact_after}` they left {outcomes:,} files of outcomes"
    yield f"{left}; the checkpoint has {checkpoint:,} files."


def _files(folder: Path, suffix: str = "") -> int:
    return sum(1 for path in folder.rglob(f"*{suffix}") if path.is_file())


def main(
    epochs: Annotated[int, typer.Option(min=10, help="How many.")] = 10_000,
    messages: Annotated[int, typer.Option(min=1, help="In each of them.")] = 4,
    compact_after: Annotated[int, typer.Option(min=1, help="As that of `consistent stream`.")] = 10,
    document: Annotated[Path | None, typer.Option(help="A page to write the table to.")] = None,
) -> None:
    """Run many epochs, and set the first of them beside the last."""
    where = _IN_MEMORY if _IN_MEMORY.exists() else None
    with tempfile.TemporaryDirectory(prefix="epochs-", dir=where) as made:
        found = run(Path(made), epochs, messages, compact_after)
        text = "\n".join(table(found, Path(made), compact_after))
    print(text)
    if document is not None:
        rewrite(MARK, text, document)


if __name__ == "__main__":
    typer.run(main)
