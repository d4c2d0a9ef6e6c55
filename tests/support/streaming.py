"""Short ways to run a stream over files in tests."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame

from runtime.spark import run_stream
from runtime.spark.streaming import SourceFormat, open_source

if TYPE_CHECKING:
    from tests.integration.spark.conftest import Place


def put(folder: Path, number: int, text: str) -> None:
    """Write a file of JSON lines that is taken in the order of its number: Spark goes by the times of files."""
    path = folder / f"{number}.jsonl"
    path.write_text(text)
    os.utime(path, (1_700_000_000 + number,) * 2)


def stream(place: Place, incoming: Path | str, format_: SourceFormat = "json", **options: Any) -> list[int]:
    """Run a query over all files that are there, each an epoch, and return which epochs were run."""
    where = {"app": place.app, "store": place.store, "table": place.table, "out": place.out}
    given = {"query": "shots", "checkpoint": str(place.folder / "checkpoint"), "trigger": "available-now"}
    is_topic = str(incoming).startswith("kafka:")
    df = open_source(place.spark, str(incoming), None if is_topic else format_, max_files=1)
    query = run_stream(df, **{**where, **given, "partitions": 2, **options})
    try:
        query.awaitTermination()
    finally:
        query.stop()
    return [progress.batchId for progress in query.recentProgress if "addBatch" in progress.durationMs]


def outcomes(place: Place) -> DataFrame:
    return place.spark.read.parquet(place.out)
