"""The driver of a batch of orders, which is killed by SIGKILL at a moment: `python -m benchmarks.side_effects.driver`.

A moment is a step of the driver: then it alone is killed, and its JVM and workers end by themselves once they notice.
Or it is `registered`, `committing` or `committed` with a number: when a worker has registered the so-manieth attempt of
the batch, or is about to commit it, or has, counted over all workers and drivers: then the driver, its JVM and the
workers are killed at once. It is the next such call if more were made before.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.side_effects.consumer import Place
from eventstore import Operation, Table, Verb
from runtime.documents import PREFIX
from samples.invoices import app

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LOG = "orders.jsonl"
_TO_THE_END = "to the end"
_PARTITIONS = 2


def killed_at(place: Place, moment: str) -> bool:
    """Run the batch until its driver is killed at a moment, or to its end; say whether it was killed."""
    return _run(place, moment) == -signal.SIGKILL


def run_to_the_end(place: Place) -> None:
    """Run the batch to its end, and write down what its outcomes announce."""
    if _run(place, _TO_THE_END):
        raise ChildProcessError((place.folder / "said").read_text())


def _run(place: Place, moment: str) -> int:
    command = [sys.executable, "-m", "benchmarks.side_effects.driver", str(place.folder), moment]
    with (place.folder / "said").open("ab") as said:
        return subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, start_new_session=True, check=False
        ).returncode


@dataclass(frozen=True, slots=True)
class KillDriver:
    """Wraps the table of each worker, and kills the driver at a moment; travels to the workers."""

    moment: str
    driver: int
    folder: Path

    def __call__(self, table: Table) -> Table:
        """Return the table that it watches."""
        watched: Table = _Watched(table, self)  # type: ignore[assignment] # the rest is the table's
        return watched

    def passed(self, kind: str) -> None:
        """Count a call, and kill all if it is the one. What is appended to a file counts for all processes."""
        with (self.folder / kind).open("ab") as calls:
            calls.write(b".")
            number = calls.tell()
        wanted, _, least = self.moment.rpartition(" ")
        if kind == wanted and number >= int(least):
            for process in (self.driver, os.getpid()):  # Spark's workers have a group of their own
                os.killpg(os.getpgid(process), signal.SIGKILL)


class _Watched:
    """A table whose registrations and commits of documents are counted."""

    def __init__(self, table: Table, killer: KillDriver) -> None:
        self._table = table
        self._killer = killer

    def __getattr__(self, name: str) -> object:
        return getattr(self._table, name)

    async def transact(self, partition_key: str, operations: Sequence[Operation]) -> tuple[str, ...]:
        verbs = {each.verb for each in operations if each.row_key.startswith(PREFIX)}
        if Verb.DELETE in verbs:
            self._killer.passed("committing")
        etags = await self._table.transact(partition_key, operations)
        if Verb.INSERT in verbs:
            self._killer.passed("registered")
        if Verb.DELETE in verbs:
            self._killer.passed("committed")
        return etags


def main() -> None:
    """Run the batch, as a driver that may be killed."""
    folder, moment = sys.argv[1:]
    place = Place(Path(folder))

    from runtime.spark import build_session, run_batch  # noqa: PLC0415 - only this process has Spark

    def die_at(step: str) -> None:
        if step == moment:
            os.kill(os.getpid(), signal.SIGKILL)

    spark = build_session(f"local[{_PARTITIONS}]", log_file=place.folder / "spark.log")
    outcomes = run_batch(
        spark, str(place.folder / LOG), app, store=place.store, table="invoices", out=str(place.folder / "out"),
        batch_id="orders", documents=str(place.documents), partitions=_PARTITIONS, step=die_at,
        wrap=KillDriver(moment, os.getpid(), place.folder),
    )  # fmt: skip
    _announce(place, outcomes)
    spark.stop()


def _announce(place: Place, outcomes: DataFrame) -> None:
    bodies = [output.body for row in outcomes.collect() for output in row.outputs]
    place.announced.write_text("".join(f"{body}\n" for body in bodies))


if __name__ == "__main__":
    main()
