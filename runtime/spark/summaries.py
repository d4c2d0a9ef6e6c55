"""Counts of outcomes: small results of the DataFrames that batches return."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from runtime.messages.dead_letters import VARYING, DeadLetters
from runtime.spark.batch import dead_letters


@dataclass(frozen=True, slots=True)
class OutcomeCount:
    """How many deliveries of a round had the same outcome in a handler, and how many outputs."""

    round: int
    handler: str | None
    status: str
    reason: str | None
    count: int
    outputs: int


def count_outcomes(outcomes: DataFrame) -> list[OutcomeCount]:
    """Count the outcomes of a batch by round, handler, status and reason. Reads them once."""
    names = ("round", "handler", "status", "reason")
    counted = outcomes.groupBy(*names).agg(
        sf.count("*").alias("count"), sf.sum(sf.coalesce(sf.size("outputs"), sf.lit(0))).alias("outputs")
    )
    found = [OutcomeCount(**row.asDict()) for row in counted.collect()]
    return sorted(found, key=lambda each: (each.round, each.handler or "", each.status, each.reason or ""))


def dead_letter_groups(outcomes: DataFrame, limit: int) -> list[DeadLetters]:
    """Return the largest groups of a batch's dead letters. Reads the outcomes once."""
    alike = sf.regexp_replace("error", VARYING, "").alias("alike")
    ids = sf.array_distinct(sf.array_compact(sf.array(sf.min("message_id"), sf.max("message_id"))))
    grouped = (
        dead_letters(outcomes)
        .groupBy("reason", "handler", "type", alike)
        .agg(sf.min("error").alias("error"), sf.count("*").alias("count"), ids.alias("message_ids"))
        .orderBy(sf.desc("count"), "reason", "error")
        .drop("alike")
    )
    return [DeadLetters(**row.asDict()) for row in grouped.limit(limit).collect()]


def rows_of(frame: DataFrame, *names: str) -> Iterator[dict[str, object]]:
    """Give the rows of a small DataFrame, each as a dict of the columns named."""
    yield from frame.select(*names).toArrow().to_pylist()
