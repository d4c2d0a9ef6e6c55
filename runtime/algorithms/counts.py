"""Counting what a table holds, by handler: objects, messages processed, and what is not finished."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import NamedTuple

from eventstore import Row, Table, pages
from runtime.algorithms.outbox.entities import ENTITY
from runtime.batches.record import STATE_BASED
from runtime.storage.listing import summaries
from runtime.storage.properties import number, text


class HandlerCount(NamedTuple):
    """What one handler has in a table.

    `objects` are streams or entities, `versions` the processed messages, `kept` the versions that are still stored,
    `unfinished` the messages whose outputs may be unpublished. An entity keeps its newest version only.
    """

    handler: str
    algorithm: str
    objects: int
    versions: int
    kept: int
    unfinished: int


async def count_handlers(table: Table) -> list[HandlerCount]:
    """Count the streams and entities of each handler. Costs two requests for each 1,000 of them."""
    counts: dict[tuple[str, str], HandlerCount] = {}
    async for found in _each(table):
        key = (found.handler, found.algorithm)
        before = counts.get(key, HandlerCount(*key, 0, 0, 0, 0))
        sums = [sum(pair) for pair in zip(before[2:], found[2:], strict=True)]
        counts[key] = HandlerCount(*key, *sums)
    return [counts[key] for key in sorted(counts)]


async def _each(table: Table) -> AsyncIterator[HandlerCount]:
    async for stream in summaries(table):
        head = stream.head
        yield HandlerCount(
            stream.handler, STATE_BASED, 1, head.versions, head.versions - head.kept_from + 1, 0
        )
    async for page in pages(partial(table.scan, ENTITY, select=["Algorithm", "Version", "Pending"])):
        for row in page.rows:
            yield _of_entity(row)


def _of_entity(row: Row) -> HandlerCount:
    handler, _, _ = row.partition_key.partition("-")
    versions, pending = number(row.properties, "Version"), number(row.properties, "Pending")
    return HandlerCount(handler, text(row.properties, "Algorithm"), 1, versions, min(versions, 1), pending)
