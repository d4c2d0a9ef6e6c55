"""`consistent evict`: forget old messages in outboxes and de-duplication stores."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from enum import StrEnum
from typing import Annotated

import typer

from eventstore import connect
from handlers import App
from runtime.algorithms.choice import described_algorithm, published_by_nobody
from runtime.batches.ledger import Ledger
from runtime.cli.apps import load_app
from runtime.cli.console import Screen
from runtime.cli.durations import parse_duration
from runtime.cli.option_groups import ScanOptions
from runtime.cli.options import (
    AppSpec,
    AsJson,
    DeduplicationStoreUrl,
    DeduplicationTableName,
    StoreUrl,
    TableName,
)
from runtime.cli.places import Named, Place, check_named
from runtime.cli.reports.tables import counted
from runtime.cli.stores import check_table
from runtime.clock import system_clock
from runtime.processor import Processor


class KeptByAge(StrEnum):
    """The algorithms that keep the ids of messages for a time."""

    OUTBOX = "outbox"
    DEDUPLICATION_STORE = "deduplication-store"


Algorithm = Annotated[
    KeptByAge,
    typer.Option("--algorithm", show_default=False, help="The algorithm that the table is processed with."),
]
OlderThan = Annotated[
    int,
    typer.Option(
        "--older-than",
        parser=parse_duration,
        metavar="AGE",
        show_default=False,
        help="Forget messages that were processed longer ago than 7d, 24h, 2w ...",
    ),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Write nothing, and say how many would be forgotten.")
]


def evict(
    *,
    app: AppSpec,
    algorithm: Algorithm,
    store: StoreUrl,
    table: TableName,
    older_than: OlderThan,
    deduplication_store: DeduplicationStoreUrl = None,
    deduplication_table: DeduplicationTableName = None,
    dry_run: DryRun = False,
    scan: ScanOptions,
    as_json: AsJson = False,
) -> None:
    r"""Forget messages that were processed longer ago, in outboxes or in the de-duplication store.

        consistent evict --app samples.shooting_range:app --algorithm outbox \
            --older-than 7d --dry-run --store sqlite:///store.db --table games

    The risk: a later copy of a forgotten message is taken for new and processed again, and nothing shows it. So keep
    ids for longer than a copy may be delivered: the retention of the queue or log, and as long as somebody may run an
    old log again. Unfinished messages are never forgotten. One request for each entity, and one more for each in which
    something is forgotten. With --master or --remote the entities are split by their keys and worked on by all workers;
    stopped at any moment, run it again to finish.
    """
    loaded = load_app(app)
    states, named = Place(store, table), Named(deduplication_store, deduplication_table)
    check_named(algorithm.value, named)
    ids = named.beside(states)
    check_table(*states)
    check_table(*ids)
    age = timedelta(microseconds=older_than)
    screen = Screen(as_json)
    asyncio.run(_check_algorithm(algorithm, states, ids))
    if scan.place is None:
        forgotten = asyncio.run(_evict(loaded, algorithm, states, ids, age, dry_run=dry_run))
    else:
        step = "Looking through the entities" if dry_run else "Forgetting"
        stopped = "Stopped. What was forgotten stays so: run it again to finish."
        with scan.on_spark(step, stopped, states, ids) as spark:
            from runtime.spark.evict import evict as evict_on_spark
            from runtime.spark.workers.connection import TablePlace

            forgotten = evict_on_spark(
                spark,
                loaded,
                TablePlace(*states),
                age,
                algorithm=algorithm.value,
                ids=None if ids == states else TablePlace(*ids),
                dry_run=dry_run,
            )
    screen.give({"dry_run": dry_run, "older_than_seconds": age.total_seconds(), "forgotten": forgotten})
    screen.show(_said(forgotten, dry_run=dry_run))


def _said(forgotten: int, *, dry_run: bool) -> str:
    if dry_run:
        return f"{counted(forgotten, 'message')} would be forgotten. A copy of them would be processed again."
    return (
        f"{counted(forgotten, 'message')} {'is' if forgotten == 1 else 'are'} forgotten. A copy of them that "
        f"still comes is processed again."
    )


async def _check_algorithm(algorithm: KeptByAge, states: Place, ids: Place) -> None:
    """Raise `UsageError` when the table was processed with another algorithm, or the ids are elsewhere."""
    described = described_algorithm(algorithm.value, None if ids == states else ids)
    async with connect(states.store) as store:
        await Ledger(await store.table(states.table), system_clock).check_table(described)


async def _evict(
    app: App,
    algorithm: KeptByAge,
    states: Place,
    ids: Place,
    older_than: timedelta,
    *,
    dry_run: bool,
) -> int:
    async with connect(states.store) as store, connect(ids.store) as other:
        processor = Processor(
            app,
            await store.table(states.table),
            published_by_nobody,
            algorithm=algorithm.value,
            deduplication_store=await other.table(ids.table) if ids != states else None,
        )
        return await processor.evict(older_than, dry_run=dry_run)
