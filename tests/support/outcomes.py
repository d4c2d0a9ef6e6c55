"""Short ways to look at outcomes."""

import asyncio
from collections import Counter
from typing import Any, NamedTuple

from pyspark.sql import DataFrame

from eventstore import connect, drive
from runtime.algorithms.outbox.entity import ENTITY, read_entity
from runtime.algorithms.outbox.stores import HEADER, TokenStore
from runtime.maintenance.statistics import count_objects
from runtime.spark.batch import outputs
from runtime.versions.stream import summaries


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


def without_tokens(outcomes: DataFrame) -> list[tuple[Any, ...]]:
    """Return all outcomes in a form that can be compared, sorted, without the names of tokens in headers."""
    rows = [row.asDict(recursive=True) for row in outcomes.drop("batch_id").collect()]
    for output in (output for row in rows for output in row["outputs"]):
        headers = output["headers"] or {}
        output["headers"] = {name: value for name, value in headers.items() if name != HEADER}
    return sorted(repr(row) for row in rows)  # type: ignore[misc]


class Left(NamedTuple):
    """What a table holds: messages processed, by handler, messages that are not finished, and live tokens."""

    processed: dict[str, int]
    unfinished: int
    tokens: int


async def _left(url: str, table: str, other: tuple[str, str]) -> Left:
    async with connect(url) as store, connect(other[0]) as opened:
        counts = (await count_objects(await store.table(table))).handlers
        tokens = await TokenStore(await opened.table(other[1])).count()
    return Left(
        {each.handler: each.versions for each in counts}, sum(each.unfinished for each in counts), tokens
    )


def left(url: str, table: str, other: tuple[str, str] | None = None) -> Left:
    return asyncio.run(_left(url, table, other or (url, table)))


async def _entities(url: str, table: str) -> dict[str, bytes]:
    async with connect(url) as store:
        page = await (await store.table(table)).scan(ENTITY)
        return {row.partition_key: read_entity(row).state for row in page.rows}


def entities(url: str, table: str) -> dict[str, bytes]:
    return asyncio.run(_entities(url, table))
