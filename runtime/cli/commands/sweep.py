"""`consistent sweep` and `consistent evict`: clean up after crashed workers, and forget old message ids."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from functools import partial
from typing import Annotated, Any

import typer

from eventstore import Table, connect
from handlers import App
from runtime.algorithms.choice import described_algorithm, published_by_nobody
from runtime.batch_options import BatchOptions
from runtime.cli.batch_command import BatchChoices, BatchCommand
from runtime.cli.checks import (
    Named,
    Place,
    check_batch,
    check_named,
    check_out,
    load_app,
    on_table,
    require_table,
)
from runtime.cli.console import Screen, counted
from runtime.cli.options import (
    AppSpec,
    AsJson,
    DeduplicationStoreUrl,
    DeduplicationTableName,
    ScanOptions,
    StoreUrl,
    TableName,
    options_of,
    parse_duration,
)
from runtime.clock import system_clock
from runtime.documents.protocol import DocumentSweep, Swept
from runtime.documents.store import DocumentStore, existing_documents
from runtime.errors import UsageError
from runtime.ledger.ledger import STATE_BASED, Ledger
from runtime.processor import Processor
from runtime.retries import RetryPolicy, until_undisturbed

# `consistent evict`: forget old messages in outboxes and de-duplication stores.


class KeptByAge(StrEnum):
    """The algorithms that keep the ids of messages for a time."""

    OUTBOX = "outbox"
    DEDUPLICATION_STORE = "deduplication-store"


Algorithm = Annotated[
    KeptByAge,
    typer.Option("--algorithm", show_default=False, help="The algorithm that the table is processed with."),
]
EvictOlderThan = Annotated[
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
    older_than: EvictOlderThan,
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
    require_table(*states)
    require_table(*ids)
    age = timedelta(microseconds=older_than)
    screen = Screen(as_json)
    asyncio.run(_check_algorithm(algorithm, states, ids))
    if scan.place is None:
        forgotten = asyncio.run(_evict(loaded, algorithm, states, ids, age, dry_run=dry_run))
    else:
        step = "Looking through the entities" if dry_run else "Forgetting"
        stopped = "Stopped. What was forgotten stays so: run it again to finish."
        with scan.on_spark(step, stopped, states, ids) as spark:
            from runtime.batch_options import TablePlace
            from runtime.spark.scan import evict as evict_on_spark

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


SweepOlderThan = Annotated[
    int,
    typer.Option(
        "--older-than",
        parser=parse_duration,
        metavar="AGE",
        help="Leave out what was begun less long ago: it may still be in progress.",
    ),
]
SweptApp = Annotated[
    str,
    typer.Option(
        "--app",
        metavar="MODULE:ATTRIBUTE",
        show_default=False,
        help="With an outbox: the App with the handlers.",
    ),
]
SweptOut = Annotated[
    str,
    typer.Option(
        "--out",
        metavar="DIR",
        show_default=False,
        help="With an outbox: where outcomes are written.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class SweepChoices(BatchChoices):
    """What can be chosen for a sweep, which is a batch where there are outboxes only."""

    out: SweptOut = ""


def sweep(
    *,
    app: SweptApp = "",
    given: Annotated[dict[str, Any], options_of(BatchOptions, "algorithm")],
    batch: SweepChoices,
    older_than: SweepOlderThan = "1h",  # type: ignore[assignment] # parsed like what is typed
    as_json: AsJson = False,
) -> None:
    r"""Finish what workers left behind that died: delete documents that do not count, or publish outputs.

        consistent sweep --documents documents \
            --store sqlite:///store.db --table games

    Deletes the documents of attempts that never committed a version. Attempts of a batch that has not ended are left
    alone. It takes no Spark, and is safe beside batches and consumers.

        consistent sweep --app samples.shooting_range:app --algorithm outbox \
            --cascade --out outcomes --store sqlite:///store.db --table games

    Publishes outputs of single messages and of abandoned batches that are still in outboxes, and whose message will not
    be redelivered. A batch that has not ended publishes its own outputs when it is run again with its id. This sweep is
    a batch too: its outcomes are duplicates with the outputs that were left. One request for each 1,000 entities, and
    three for each with something left.
    """
    age, screen = timedelta(microseconds=older_than), Screen(as_json)
    if given["algorithm"] != STATE_BASED:
        _sweep_outboxes(app, given["algorithm"], batch, age, screen)
        return
    documents = batch.given["documents"]
    if documents is None:
        raise UsageError(
            "State-based, no outputs are stored that could be swept: run the messages again, or the batch that died "
            "with its id. To delete documents that do not count, say with --documents where they are."
        )
    swept = on_table(*batch.states, partial(_sweep_documents, existing_documents(documents), age))
    screen.give({"attempts": swept.attempts, "documents": swept.documents})
    screen.show(
        f"Deleted {counted(swept.documents, 'document')} of {counted(swept.attempts, 'attempt')} that never committed."
        if swept.attempts
        else "Nothing was left behind."
    )


async def _sweep_documents(documents: DocumentStore, age: timedelta, table: Table) -> Swept:
    retries = RetryPolicy().beside(table)
    ledger = Ledger(table, system_clock, retries)
    open_batches = await until_undisturbed(retries, ledger.open_batches)
    return await DocumentSweep(table, documents, system_clock, retries, open_batches).sweep(age)


def _sweep_outboxes(app: str, algorithm: str, batch: SweepChoices, age: timedelta, screen: Screen) -> None:
    if not app or not batch.out:
        raise UsageError(f"To sweep a table of the algorithm {algorithm}, give --app and --out.")
    loaded = load_app(app)
    options = batch.options(algorithm=algorithm)
    require_table(*batch.states)
    check_out(batch.out, batch.spark.place)
    check_batch(loaded, batch.states, options, batch.batch_id, batch.out, must_exist=True)
    command = BatchCommand.announced(loaded, batch, options, screen)
    with command.carried_out("Looking for what is unfinished", lambda new, id_: new.sweep(age, id_)) as done:
        if done.report.counts:
            screen.put(done.report)
        else:
            screen.give(done.report.document())
            screen.show("Nothing was left unfinished.")
