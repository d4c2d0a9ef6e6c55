"""`consistent sweep`: publish outputs whose worker died."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Annotated

import typer

from runtime.cli.apps import load_app
from runtime.cli.commands.run import BatchId, Cascade, Out
from runtime.cli.console import Screen
from runtime.cli.durations import parse_duration
from runtime.cli.invocation import command_with, resumable
from runtime.cli.options import (
    DEFAULT_MASTER,
    AppSpec,
    AsJson,
    DeduplicationStoreUrl,
    DeduplicationTableName,
    LogFile,
    Master,
    MaxRounds,
    Partitions,
    StoreUrl,
    TableName,
    TokenStoreUrl,
    TokenTableName,
    WithOutbox,
)
from runtime.cli.places import Named, Place, Stores
from runtime.cli.reports.batch import BatchReport
from runtime.cli.sessions import working
from runtime.cli.stores import check_table

OlderThan = Annotated[
    int,
    typer.Option(
        "--older-than",
        parser=parse_duration,
        metavar="AGE",
        help="Leave out single messages that were handled less long ago: they may still be in progress.",
    ),
]


def sweep(
    *,
    app: AppSpec,
    algorithm: WithOutbox,
    store: StoreUrl,
    table: TableName,
    out: Out,
    older_than: OlderThan = "1h",  # type: ignore[assignment] # parsed like what is typed
    cascade: Cascade = False,
    batch_id: BatchId = None,
    deduplication_store: DeduplicationStoreUrl = None,
    deduplication_table: DeduplicationTableName = None,
    token_store: TokenStoreUrl = None,
    token_table: TokenTableName = None,
    max_rounds: MaxRounds = 100,
    partitions: Partitions = None,
    master: Master = DEFAULT_MASTER,
    log_file: LogFile = None,
    as_json: AsJson = False,
) -> None:
    r"""Publish outputs whose worker died and whose message will not be redelivered.

        consistent sweep --app samples.shooting_range:app --algorithm outbox \
            --cascade --out outcomes --store sqlite:///store.db --table games

    These are outputs of single messages and of abandoned batches that are still in the outboxes. A batch that has not
    ended publishes its own outputs when it is run again with its id. A sweep is a batch too: its outcomes are
    duplicates with the outputs that were left. One request for each 1,000 entities, and three for each with something
    left.
    """
    loaded = load_app(app)
    from runtime.spark.batch import Batch, new_batch_id
    from runtime.spark.batch_options import BatchOptions

    stores = Stores.of(
        Place(store, table),
        algorithm.value,
        master,
        deduplication_store=Named(deduplication_store, deduplication_table),
        token_store=Named(token_store, token_table),
    )
    check_table(store, table)
    options = BatchOptions(
        cascade=cascade,
        max_rounds=max_rounds,
        partitions=partitions,
        algorithm=algorithm.value,
        deduplication_store=stores.deduplication_store,
        token_store=stores.token_store,
    )
    chosen = batch_id or new_batch_id()
    how_to_go_on = f"go on with: {command_with('--batch-id', chosen)}"
    screen = Screen(as_json)
    screen.note(f"Batch {chosen}: if it stops before its end, {how_to_go_on}")
    stopped = f"Stopped. Nothing is lost: {how_to_go_on}"
    with working(master, log_file, when_stopped=stopped) as (spark, progress):
        progress.step("Looking for what is unfinished")
        batch = Batch(spark, loaded, store, table, out, replace(options, step=progress.step))
        with resumable(chosen, store, table):
            result = batch.sweep(timedelta(microseconds=older_than), chosen)
        report = BatchReport.of(result)
        progress.done()
        screen.give(report.document())
        if report.counts:
            screen.show(*report.parts())
        else:
            screen.show("Nothing was left unfinished.")
