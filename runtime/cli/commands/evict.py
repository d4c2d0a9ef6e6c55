"""`consistent evict`: let outboxes and de-duplication stores forget old messages."""

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
from runtime.cli.options import AppSpec, AsJson, EvidenceStore, EvidenceTable, StoreUrl, TableName
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
    evidence_store: EvidenceStore = None,
    evidence_table: EvidenceTable = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    r"""Forget messages that were processed longer ago, in outboxes or in the de-duplication store.

        consistent evict --app samples.shooting_range:app --algorithm outbox --older-than 7d --dry-run \
            --store sqlite:///store.db --table games

    The risk: a copy of a forgotten message that comes later is taken for new and processed again, and nobody can tell.
    So keep messages for longer than any copy may be under way: the retention of the queue or log, and as long as
    somebody may run an old log again. What is not finished is never forgotten. One request for each entity, and one
    more for each in which something is forgotten.
    """
    loaded = load_app(app)
    evidence_store, evidence_table = evidence_store or store, evidence_table or table
    check_table(store, table)
    check_table(evidence_store, evidence_table)
    age = timedelta(microseconds=older_than)
    screen = Screen(as_json)
    forgotten = asyncio.run(
        _evict(loaded, algorithm, (store, table), (evidence_store, evidence_table), age, dry_run=dry_run)
    )
    screen.give({"dry_run": dry_run, "older_than_seconds": age.total_seconds(), "forgotten": forgotten})
    if dry_run:
        screen.show(f"{forgotten:,} messages would be forgotten. A copy of them would be processed again.")
    else:
        screen.show(
            f"{forgotten:,} messages are forgotten. A copy of them that still comes is processed again."
        )


async def _evict(
    app: App,
    algorithm: KeptByAge,
    states: tuple[str, str],
    evidence: tuple[str, str],
    older_than: timedelta,
    *,
    dry_run: bool,
) -> int:
    async with connect(states[0]) as store, connect(evidence[0]) as other:
        table = await store.table(states[1])
        described = described_algorithm(algorithm.value, None if evidence == states else evidence)
        await Ledger(table, system_clock).check_algorithm(described)
        processor = Processor(
            app,
            table,
            published_by_nobody,
            algorithm=algorithm.value,
            evidence=await other.table(evidence[1]),
        )
        return await processor.evict(older_than, dry_run=dry_run)
