"""The golden scenario on Spark: batches over both logs, the same again, truncation, and a late copy."""

import asyncio
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from eventstore import InterceptedTable, Table, connect
from runtime.spark import run_batch, truncate
from samples.shooting_range.log import generate
from tests.golden import logs
from tests.golden.app import app
from tests.golden.scenarios import BEGIN, SECOND, TABLE, Consumer, Facts, envelope, held, in_order, plain

DAY = 24 * 3600 * SECOND
_MANY = 500


@dataclass(frozen=True)
class Standing:
    """A clock that stands still, here and in workers."""

    now: int

    def __call__(self) -> int:
        return self.now


@dataclass(frozen=True)
class Counted:
    """Notes each call of a worker in a file."""

    file: Path

    def __call__(self, table: Table) -> Table:
        return InterceptedTable(table, before=self._note)

    def _note(self, call: str, partition_key: str, _: int) -> None:
        if not partition_key.startswith("_"):
            with self.file.open("a") as notes:
                notes.write(f"{call}\n")

    def take(self) -> dict[str, int]:
        calls = self.file.read_text().split() if self.file.exists() else []
        self.file.unlink(missing_ok=True)
        return dict(sorted(Counter(calls).items()))


def batches(spark: SparkSession, folder: Path) -> Facts:
    """Run the logs in batches, truncate, and deliver late copies. Return what came of it, and requests."""
    store = f"sqlite:///{folder}/batches.db"
    found: dict[str, Facts] = {}
    requests: dict[str, Facts] = {}
    counted = Counted(folder / "calls")

    def run(name: str, log: str | list[str], day: int, **options: Any) -> None:
        place = {"store": store, "table": TABLE, "out": str(folder / "out"), "batch_id": name}
        usual = {"clock": Standing(BEGIN + day * DAY), "partitions": 2, "wrap": counted, "cascade": True}
        given: dict[str, Any] = {**place, **usual, **options}
        found[name] = _outcomes(run_batch(spark, log, app, **given))
        requests[name] = counted.take()

    lines, parquet = str(logs.FOLDER / "log.jsonl"), str(logs.FOLDER / "log.parquet")
    more, many = folder / "more.jsonl", folder / "many.jsonl"
    _write(more, generate(1, 500, seed=5, begin=logs.BEGIN + timedelta(days=9)))
    _write(many, generate(10, 1000))
    run("lines", lines, 1)
    run("parquet", parquet, 2)
    run("again", [lines, str(more)], 10)
    before = held(store)
    cut = truncate(
        spark, store=store, table=TABLE, clock=Standing(BEGIN + 60 * DAY), wrap=counted, allow_undated=True,
        keep_last=20, older_than=30 * DAY, acknowledged_after=DAY, give_up_letters_older_than=DAY,
    )  # fmt: skip
    requests["truncation of messages"] = counted.take()
    late = asyncio.run(_late(store))
    run("outbox", lines, 1, algorithm="outbox", table="outbox")
    run("10-streams-of-100-messages", str(many), 1, table="many")
    return {
        "outcomes": {**found, "late": late},
        "before truncation": _thinned(before),
        "cut": in_order(
            {"handler": each.handler, "streams": each.streams, "versions": each.versions}
            for each in cut.counts
        ),
        "after truncation": _thinned(held(store)),
        "requests": {name: requests[name] for name in requests if name.endswith("messages")},
    }


async def _late(store: str) -> list[Facts]:
    """Deliver the first messages of the long game once more, whose versions were cut."""
    async with connect(store) as opened:
        consumer = Consumer(await opened.table(TABLE), now=BEGIN + 61 * DAY)
        rows = [
            {**row, "enqueued_at": row["enqueued_at"].isoformat()}
            for row in generate(1, 3, seed=5, begin=logs.BEGIN)
        ]
        return [each for row in rows for each in await consumer.take(envelope(row))]


def _write(file: Path, rows: Iterable[logs.Row]) -> None:
    file.write_text("".join(json.dumps(row, default=str) + "\n" for row in rows))


def _outcomes(outcomes: DataFrame) -> list[Facts]:
    """Return outcomes as JSON; of many every fiftieth."""
    left_out = {"batch_id", "round", "error", "type", "body", "sequence", "enqueued_at", "headers"}
    rows = [row.asDict(recursive=True) for row in outcomes.collect()]
    found = in_order(
        plain(
            {name: value for name, value in row.items() if name not in left_out and value not in (None, [])}
        )
        for row in rows
    )
    return found if len(found) < _MANY else found[::50]


def _thinned(found: Facts) -> Facts:
    """Keep every fiftieth version."""
    return {**found, "versions": found["versions"][::50]}
