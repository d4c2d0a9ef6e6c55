"""The command: `python -m benchmarks.cleanup`."""

from __future__ import annotations

import asyncio
import json
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.azurite import Azurite
from benchmarks.cleanup.streams import RUNS, fill
from benchmarks.code import code_digest
from benchmarks.contender import DisagreementError
from benchmarks.logs import CACHE
from benchmarks.processes import own_process
from benchmarks.results import FOLDER, machine, now, packages
from benchmarks.shooting import TABLE
from benchmarks.skew.memory import Sampler
from runtime.algorithms.state_based.truncation_rules import DAY
from runtime.spark import build_session, truncate

SIZES = {
    "small": (("sqlite", 1_000), ("sqlite", 10_000), ("azurite", 200), ("azurite", 1_000)),
    "default": (("sqlite", 1_000), ("sqlite", 10_000), ("sqlite", 100_000), ("azurite", 2_000)),
    "full": (
        ("sqlite", 10_000),
        ("sqlite", 100_000),
        ("sqlite", 1_000_000),
        ("azurite", 2_000),
        ("azurite", 20_000),
    ),
}
HELP = """Truncate tables of very many streams, and watch the memory of driver and workers.

Each table has a Spark session of its own on two cores. A stream has three runs that go, and a tail. Results go to
benchmarks/results/DATE-cleanup-SIZE.json. With --size full it takes hours. It reads /proc, so it needs Linux.
"""

_MB = 10**6
_KIB = 1024

cli = typer.Typer(add_completion=False)


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


@cli.command(help=HELP)
def main(
    size: Annotated[str, typer.Option(help=f"How many streams: {', '.join(SIZES)}.")] = "default",
    results: Annotated[Path, typer.Option(help="The folder for the results.")] = FOLDER,
) -> None:
    """Truncate the tables, print what that took and write it."""
    if size not in SIZES:
        message = f"{size} is none of {', '.join(SIZES)}."
        raise typer.BadParameter(message, param_hint="--size")
    begun, code = now(), code_digest()
    found: list[Found] = []
    (CACHE / "runs").mkdir(parents=True, exist_ok=True)
    for store, streams in SIZES[size]:
        typer.echo(f"Truncating {streams:,} streams on {store}", err=True)
        with tempfile.TemporaryDirectory(dir=CACHE / "runs") as folder, own_process() as process:
            found.append(process.submit(run, store, streams, Path(folder)).result())
    _print(found)
    results.mkdir(parents=True, exist_ok=True)
    path = results / f"{begun:%Y-%m-%d}-cleanup-{size}.json"
    about = {"begun": begun.isoformat(), "code": code, "machine": machine(2), "packages": packages()}
    path.write_text(json.dumps({**about, "tables": [asdict(each) for each in found]}, indent=2) + "\n")
    print(f"All measurements: {path}")


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


def _print(found: Sequence[Found]) -> None:
    table = Table("store")
    for title in (
        "streams",
        "rows deleted",
        "seconds",
        "streams/s",
        "requests",
        "per row",
        "worker MB",
        "driver MB",
    ):
        table.add_column(title, justify="right")
    for each in found:
        table.add_row(
            each.store,
            f"{each.streams:,}",
            f"{each.rows:,}",
            f"{each.seconds:.1f}",
            f"{each.streams / each.seconds:,.0f}",
            f"{each.requests:,}",
            f"{each.requests_per_row:.2f}",
            f"{each.worker_mb:.0f}",
            f"{each.driver_mb:.0f}",
        )
    Console(width=140, highlight=False).print(table)


def _end_in_order(signal_number: int, _: object) -> None:
    sys.exit(128 + signal_number)


if __name__ == "__main__":
    # Whoever ends this means the sessions of the tables too.
    signal.signal(signal.SIGTERM, _end_in_order)
    cli()
