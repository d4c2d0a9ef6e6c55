"""What telemetry costs: `python -m benchmarks telemetry` runs a consumer and a fold with it and without, in turn.

`consumer` handles messages of the ShootingRange sample on an SQLite file, from a source in memory. `fold` is the task
of a batch: it folds a partition on an SQLite file, and writes the outcomes. Each kind lives in a process of its own,
and all kinds work in turn. Time is that of the processor, the least of three runs, since others only add to it. A ratio
is the median of the turns.

`--base DIR` names a checkout without telemetry, with which `off` is compared; without it `off` is the base.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

KINDS = {
    "base": "without telemetry",
    "off": "telemetry off",
    "metrics": "metrics on",
    "otel": "metrics and traces by OpenTelemetry's SDK",
}
PER_STREAM = 20
RUNS = 3


class Memory:
    """A source that has all messages at once."""

    name, origin = "memory", None

    def __init__(self, contents: Sequence[bytes]) -> None:
        from runtime.serve.messages import read_message  # noqa: PLC0415 - of the checkout that is measured

        self._received = [read_message(content, "memory") for content in contents]

    async def open(self, _: object) -> None:
        """Do nothing."""

    async def read(self, most: int, _: float) -> Any:  # noqa: ANN401 - deliveries, or None
        """Return the next messages."""
        found, self._received = self._received[:most], self._received[most:]
        await asyncio.sleep(0)
        return found or (None if most else [])

    async def acknowledge(self, _: object) -> None:
        """Do nothing."""

    async def close(self) -> None:
        """Do nothing."""


def consumer(kind: str, messages: int, folder: str) -> float:
    """Handle all messages in a consumer, and return the seconds of processor time."""
    from eventstore import connect  # noqa: PLC0415 - as above
    from runtime.serve import Consumer, ServeOptions  # noqa: PLC0415
    from samples.shooting_range import app  # noqa: PLC0415
    from samples.shooting_range.log import generate  # noqa: PLC0415

    rows = generate(messages // PER_STREAM, messages)
    lines = [
        json.dumps({"message_id": row["message_id"], "type": row["type"], "body": json.loads(row["body"])})
        for row in rows
    ]
    source: Any = Memory([line.encode() for line in lines])
    options = ServeOptions(linger_ms=0)

    async def run() -> float:
        async with connect(f"sqlite:///{folder}/store.db") as store:
            serving = Consumer(app, table=await store.table("games"), source=source, options=options)
            if kind == "metrics":  # without a port, which takes longer to open than few messages do
                serving._metrics = _metrics()  # noqa: SLF001
            begun = time.process_time()
            counts = await serving.run()
            if counts["processed"] != messages:
                raise AssertionError(f"Not all was handled: {counts}")
            return time.process_time() - begun

    return asyncio.run(run())


def fold(kind: str, messages: int, folder: str) -> float:
    """Run the task of a batch, and return the seconds of processor time."""
    from benchmarks.games import by_game, routed_batches  # noqa: PLC0415 - as above
    from runtime.ledger.batch import BatchContext  # noqa: PLC0415
    from runtime.spark.worker.job import FoldJob  # noqa: PLC0415
    from runtime.spark.worker.outcomes import PartJob  # noqa: PLC0415
    from samples.shooting_range import app  # noqa: PLC0415

    more: dict[str, Any] = {}
    if kind == "metrics":
        more = {"metrics": _metrics()}
    job = FoldJob(app, f"sqlite:///{folder}/store.db", "games", BatchContext("b"), **more)
    batches = list(routed_batches(by_game(range(messages // PER_STREAM), range(PER_STREAM))))
    task = PartJob(job.fold, folder, tuple(app.message_types), **more)
    begun = time.process_time()
    list(task.run(batches))
    return time.process_time() - begun


def _metrics() -> Any:  # noqa: ANN401 - the base has none
    from runtime.telemetry import Metrics  # noqa: PLC0415 - as above

    return Metrics(forwards=False)


WORK = {"consumer": consumer, "fold": fold}


def work(kind: str, messages: int) -> None:
    """Measure what each line of standard input names, and print the seconds."""
    if kind == "otel":
        from opentelemetry import metrics, trace  # noqa: PLC0415
        from opentelemetry.sdk.metrics import MeterProvider  # noqa: PLC0415
        from opentelemetry.sdk.metrics.export import InMemoryMetricReader  # noqa: PLC0415
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415

        metrics.set_meter_provider(MeterProvider([InMemoryMetricReader()]))
        trace.set_tracer_provider(TracerProvider())
    for line in sys.stdin:
        with tempfile.TemporaryDirectory() as folder:
            print(WORK[line.strip()](kind, messages, folder), flush=True)


class Worker:
    """A process of one kind, in a checkout."""

    def __init__(self, kind: str, messages: int, checkout: str) -> None:
        call = f"runpy.run_path({__file__!r})['work']({kind!r}, {messages})"
        self._process = subprocess.Popen(
            [sys.executable, "-c", f"import runpy; {call}"],
            cwd=checkout, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "PYTHONPATH": checkout},
        )  # fmt: skip

    def measure(self, name: str) -> float:
        """Return the seconds of processor time."""
        if not self._process.stdin or not self._process.stdout:
            raise AssertionError
        self._process.stdin.write(f"{name}\n" * RUNS)
        self._process.stdin.flush()
        return min(float(self._process.stdout.readline()) for _ in range(RUNS))

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


def main(
    messages: Annotated[int, typer.Option(min=PER_STREAM, help="Messages of each measurement.")] = 10_000,
    turns: Annotated[int, typer.Option(min=1, help="Turns, after one to warm up.")] = 15,
    base: Annotated[str, typer.Option(help="A checkout without telemetry.")] = "",
) -> None:
    """Measure all kinds in turn, and print the median ratios."""
    here = str(Path(__file__).resolve().parents[1])
    kinds = [kind for kind in KINDS if base or kind != "base"]
    workers = {kind: Worker(kind, messages, base if kind == "base" else here) for kind in kinds}
    first = kinds[0]
    for name in WORK:
        kinds = (
            kinds if name == "consumer" else [kind for kind in kinds if kind != "otel"]
        )  # a task has no traces
        found: dict[str, list[float]] = {kind: [] for kind in kinds}
        for turn in range(turns + 1):
            order = kinds[turn % len(kinds) :] + kinds[: turn % len(kinds)]
            seconds = {kind: workers[kind].measure(name) for kind in order}
            for kind in kinds if turn else ():
                found[kind].append(seconds[kind])
        for kind in kinds:
            ratios = [one / other for one, other in zip(found[kind], found[first], strict=True)]
            spread = statistics.quantiles(ratios, n=4) if turns > 1 else ratios * 3
            micro = statistics.median(found[kind]) / messages * 1e6
            print(
                f"{name:<9} {KINDS[kind]:<42} {micro:6.1f} us a message   {spread[1]:.3f} "
                f"({spread[0]:.3f} to {spread[2]:.3f})"
            )
    for worker in workers.values():
        worker.close()


if __name__ == "__main__":
    typer.run(main)
