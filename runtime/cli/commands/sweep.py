"""`consistent sweep` and `consistent evict`: clean up after crashed workers, and forget old message ids."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Annotated, Literal

from eventstore import Table, connect
from runtime.algorithms.choice import described_algorithm, published_by_nobody
from runtime.batch_options import BatchOptions, TablePlace
from runtime.cli.batch_command import OF_ANY_BATCH, BatchChoices
from runtime.cli.checks import confirm, load_app, on_table, require_table
from runtime.cli.console import Screen, counted
from runtime.cli.options import AppSpec, AsJson, OtherStores, ScanOptions, Yes, only
from runtime.clock import system_clock
from runtime.documents.protocol import DocumentSweep, Swept
from runtime.documents.store import existing_documents
from runtime.errors import UsageError
from runtime.ledger.ledger import STATE_BASED, Ledger
from runtime.options import option
from runtime.processor import Processor
from runtime.retries import RetryPolicy, until_undisturbed


def evict(
    *,
    app: AppSpec,
    algorithm: Literal["outbox", "deduplication-store"] = option(
        "The algorithm that the table is processed with."
    ),
    states: TablePlace,
    older_than: timedelta = option(
        "Forget messages that were processed longer ago than 7d, 24h, 2w ...", metavar="AGE"
    ),
    others: Annotated[OtherStores, only("deduplication_store", "deduplication_table")],
    dry_run: bool = option("Write nothing, and say how many would be forgotten.", default=False),
    yes: Yes = False,
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
    others.check(algorithm)
    ids = others.ids(states)
    require_table(states)
    require_table(ids)
    elsewhere = None if ids == states else ids

    async def check_algorithm(table: Table) -> None:
        """Raise `UsageError` when the table was processed with another algorithm, or the ids are elsewhere."""
        place = None if elsewhere is None else (ids.store, ids.table)
        await Ledger(table, system_clock).check_table(described_algorithm(algorithm, place))

    async def evict_here() -> int:
        async with connect(states.store) as store, connect(ids.store) as other:
            processor = Processor(
                loaded,
                await store.table(states.table),
                published_by_nobody,
                algorithm=algorithm,
                deduplication_store=await other.table(ids.table) if elsewhere else None,
            )
            return await processor.evict(older_than, dry_run=dry_run)

    on_table(states, check_algorithm)
    if not dry_run:
        confirm(f"Forgetting which messages {states.table} has processed", yes=yes)
    if scan.place:
        step = "Looking through the entities" if dry_run else "Forgetting"
        stopped = "Stopped. What was forgotten stays so: run it again to finish."
        with scan.on_spark(step, stopped, states, ids) as spark:
            from runtime.spark.outbox import evict as on_workers

            forgotten = on_workers(
                spark, loaded, states, older_than, algorithm=algorithm, ids=elsewhere, dry_run=dry_run
            )
    else:
        forgotten = asyncio.run(evict_here())
    if dry_run:
        said = f"{counted(forgotten, 'message')} would be forgotten. A copy of them would be processed again."
    else:
        are = "is" if forgotten == 1 else "are"
        said = f"{counted(forgotten, 'message')} {are} forgotten. A copy of them that still comes is processed again."
    seconds = older_than.total_seconds()
    Screen(as_json).put({"dry_run": dry_run, "older_than_seconds": seconds, "forgotten": forgotten}, said)


@dataclass(frozen=True, kw_only=True)
class SweepChoices(BatchChoices):
    """What can be chosen for a sweep, which is a batch where there are outboxes only."""

    out: str = option("With an outbox: where outcomes are written.", default="", metavar="DIR")


def sweep(
    *,
    app: str = option("With an outbox: the App with the handlers.", default="", metavar="MODULE:ATTRIBUTE"),
    batch: SweepChoices,
    options: Annotated[BatchOptions, only(*OF_ANY_BATCH, "algorithm")],
    older_than: timedelta = option(
        "Leave out single messages that were begun less long ago: they may still be in progress.",
        default=timedelta(hours=1),
        metavar="AGE",
    ),
    dry_run: bool = option("With --documents: write nothing, and say what would be deleted.", default=False),
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    r"""Finish what workers left behind that died: delete documents that do not count, or publish outputs.

        consistent sweep --documents documents \
            --store sqlite:///store.db --table games

    Deletes the documents of attempts that never committed a version: those of single messages once they are old
    enough, and those of a batch once it is published or abandoned, whatever their age. It takes no Spark, and is safe
    beside batches and consumers.

        consistent sweep --app samples.shooting_range:app --algorithm outbox \
            --cascade --out outcomes --store sqlite:///store.db --table games

    Publishes outputs of single messages and of abandoned batches that are still in outboxes, and whose message will not
    be redelivered. A batch that has not ended publishes its own outputs when it is run again with its id. This sweep is
    a batch too: its outcomes are duplicates with the outputs that were left. One request for each 1,000 entities, and
    three for each with something left.
    """
    screen = Screen(as_json)
    if options.algorithm == STATE_BASED:
        if options.documents is None:
            raise UsageError(
                "State-based, no outputs are stored that could be swept: run the messages again, or the batch that "
                "died with its id. To delete documents that do not count, say with --documents where they are."
            )
        documents = existing_documents(options.documents)

        async def sweep_documents(table: Table, *, only_look: bool) -> Swept:
            retries = RetryPolicy().beside(table)
            open_batches = await until_undisturbed(retries, Ledger(table, system_clock, retries).open_batches)
            sweep = DocumentSweep(table, documents, system_clock, retries, open_batches, only_look)
            return await sweep.sweep(older_than)

        swept = on_table(batch.states, partial(sweep_documents, only_look=dry_run or not yes))
        is_some = bool(swept.attempts or swept.documents)
        if is_some and not (dry_run or yes):
            confirm(f"Deleting {counted(swept.documents, 'document')} of attempts that died", yes=False)
            swept = on_table(batch.states, partial(sweep_documents, only_look=False))
        said = ["Nothing was deleted: this is what would be."] if dry_run and is_some else []
        if is_some:
            of = f"{counted(swept.attempts, 'attempt')} that never committed"
            late = "attempts that were given up before"
            deleted = f"Up to {swept.documents:,}" if dry_run else f"Deleted {swept.documents:,}"
            noun = "document" if swept.documents == 1 else "documents"
            said.append(f"{deleted} {noun} of {of if swept.attempts else late}.")
        reasons = {
            f"begun less than {older_than} ago (--older-than)": swept.young,
            "of a batch that has not ended: run it again with its id, or abandon it": swept.open,
            "given up less than a day ago: a sweep after that looks once more for late documents": swept.given_up,
        }
        said += [f"Left alone: {counted(many, 'attempt')} {why}." for why, many in reasons.items() if many]
        screen.put(swept._asdict(), *(said or ["Nothing was left behind."]))
        return
    if dry_run:
        raise UsageError(
            "--dry-run goes with --documents: `consistent stats` counts what outboxes have left."
        )
    if not app or not batch.out:
        raise UsageError(f"To sweep a table of the algorithm {options.algorithm}, give --app and --out.")
    loaded = load_app(app)
    options = batch.options(options)
    require_table(batch.states)
    batch.check(loaded, options)
    step, announced = "Looking for what is unfinished", batch.announced(screen)
    with announced.carried_out(loaded, options, step, lambda new, id_: new.sweep(older_than, id_)) as done:
        report = done.report
        screen.put(
            report.document(),
            *(
                report.parts()
                if report.counts
                else [f"Nothing that began {older_than} ago or before is unfinished."]
            ),
        )
