"""The driver of batches on a cluster: takes an order from each line of standard input, and answers how it ended."""

import asyncio
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from eventstore import InterceptedTable, Table
from runtime.spark import Batch, BatchOptions, build_session
from samples.shooting_range import app
from tests.faults.cluster import SLOW
from tests.faults.worlds import BATCH, NOW
from tests.plugins.spark import QUICK

PARTITIONS = 4
SETTINGS = {
    **QUICK,
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "600m",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    # A task that takes longer than the others is run beside on another executor.
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.2",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "200ms",
}


@dataclass(frozen=True)
class SlowHere:
    """Wraps the tables of tasks: those of the slow executor wait before each call."""

    def __call__(self, table: Table) -> Table:
        seconds = float(os.environ.get(SLOW, "0"))
        return InterceptedTable(table, before=lambda *_: asyncio.sleep(seconds)) if seconds else table


def run(spark: SparkSession, order: dict[str, Any]) -> str | None:
    """Begin or resume a batch; return the error with which it ended, as a driver is told of it."""
    options = BatchOptions(
        partitions=PARTITIONS, in_flight=4, algorithm=order["algorithm"], clock=NOW, wrap=SlowHere()
    )
    try:
        batch = Batch(spark, app, order["store"], order["table"], order["out"], options)
        batch.run(order["log"], BATCH)
    except Exception as error:  # noqa: BLE001 - it is told to who ordered
        return f"{type(error).__name__}: {error}"
    return None


def main(master: str, folder: Path) -> None:
    spark = build_session(master, log_file=folder / "spark.log", settings=SETTINGS)
    spark.sparkContext.setLogLevel("INFO")
    for line in sys.stdin:
        print(json.dumps({"error": run(spark, json.loads(line))}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
