"""Short ways to look at outcomes."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from pyspark.sql import DataFrame

from eventstore import connect, drive
from runtime.spark.batch import outputs
from runtime.streams import summaries


def by_status(outcomes: DataFrame) -> Counter[tuple[str, ...]]:
    """Count outcomes by handler and status, and for dead letters by reason."""
    rows = outcomes.select("handler", "status", "reason").collect()
    return Counter((row.handler or "-", row.status, *([row.reason] if row.reason else [])) for row in rows)


def statuses(outcomes: DataFrame) -> dict[str, list[str]]:
    """Return, for each message, the statuses (or reasons) of its deliveries."""
    found: dict[str, list[str]] = {}
    for row in outcomes.select("message_id", "status", "reason").collect():
        found.setdefault(row.message_id, []).append(row.reason or row.status)
    return {key: sorted(values) for key, values in found.items()}


def published(outcomes: DataFrame) -> list[tuple[Any, ...]]:
    """Return all outputs with all their columns, sorted."""
    rows = (
        outputs(outcomes).select("message_id", "type", "body", "sequence", "enqueued_at", "headers").collect()
    )
    return sorted((*row[:5], tuple(sorted((row.headers or {}).items()))) for row in rows)


def all_outcomes(outcomes: DataFrame) -> list[tuple[Any, ...]]:
    """Return all outcomes in a form that can be compared, sorted."""
    rows = outcomes.collect()
    return sorted(repr(row.asDict(recursive=True)) for row in rows)  # type: ignore[misc]


async def _heads(url: str, table: str) -> dict[str, tuple[int, bytes]]:
    async with connect(url) as store:
        found = summaries(await store.table(table))
        return {summary.key: (summary.head.versions, summary.head.state or b"") async for summary in found}


def heads(url: str, table: str) -> dict[str, tuple[int, bytes]]:
    """Return, for each stream, the number of its versions and its newest state."""
    if url.startswith("sqlite"):
        return drive(_heads(url, table))
    return asyncio.run(_heads(url, table))
