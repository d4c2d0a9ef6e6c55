"""`consistent redrive`: a batch over letters."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from eventstore import Table
from runtime.algorithms.letters.lines import Edits
from runtime.algorithms.letters.reading import find_letters
from runtime.algorithms.letters.wanted import Wanted
from runtime.cli.apps import load_app
from runtime.cli.beginning import check_batch
from runtime.cli.commands.run import AlgorithmOption, BatchId, Cascade, Guard, Out
from runtime.cli.console import Screen
from runtime.cli.invocation import command_with, resumable
from runtime.cli.letter_selection import (
    AgeOption,
    AllOption,
    HandlerOption,
    MessageOption,
    ReasonOption,
    StreamOption,
    check_chosen,
    make_selection,
)
from runtime.cli.options import (
    DEFAULT_MASTER,
    AlgorithmChoice,
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
)
from runtime.cli.places import Named, Place, Stores, check_out
from runtime.cli.reports.batch import BatchReport
from runtime.cli.reports.letters import LettersReport
from runtime.cli.sessions import working
from runtime.cli.stores import check_table, on_table

EditOption = Annotated[
    Path | None,
    typer.Option(
        "--edit",
        metavar="FILE",
        dir_okay=False,
        exists=True,
        help="Lines that `consistent letters --export` wrote, with messages mended: each is handled in place of its "
        "letter's. Without other choices, these letters are redriven.",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Write nothing, and say what would be redriven.")]


def redrive(
    *,
    app: AppSpec,
    store: StoreUrl,
    table: TableName,
    out: Out,
    message: MessageOption = None,
    reason: ReasonOption = None,
    handler: HandlerOption = None,
    stream: StreamOption = None,
    older_than: AgeOption = None,
    all_: AllOption = False,
    edit: EditOption = None,
    dry_run: DryRun = False,
    batch_id: BatchId = None,
    cascade: Cascade = False,
    max_rounds: MaxRounds = 100,
    partitions: Partitions = None,
    guard: Guard = False,
    algorithm: AlgorithmOption = AlgorithmChoice.STATE_BASED,
    deduplication_store: DeduplicationStoreUrl = None,
    deduplication_table: DeduplicationTableName = None,
    token_store: TokenStoreUrl = None,
    token_table: TokenTableName = None,
    master: Master = DEFAULT_MASTER,
    log_file: LogFile = None,
    as_json: AsJson = False,
) -> None:
    r"""Handle letters again, once their cause is mended, each in its own handler.

        consistent redrive --app samples.shooting_range:app --cascade \
            --store sqlite:///store.db --table games --out outcomes --all

    A redrive is a batch. A letter that is processed is a letter no more; one that is refused again stays, with the new
    reason. Letters of one stream are handled in the order in which they came. Which letters they are is decided once:
    a redrive that was stopped goes on with the same ones when it is run again with its id.
    """
    selection = make_selection(message, reason, handler, stream, older_than)
    check_chosen(selection, is_enough=all_ or edit is not None or batch_id is not None)
    edits = Edits(() if edit is None else edit.read_text("utf-8").splitlines())
    wanted = Wanted(selection, edits, only_edited=selection.is_all and not all_ and edit is not None)
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
    screen = Screen(as_json)
    if dry_run:
        seen = on_table(store, table, lambda opened: _look(opened, wanted))
        screen.give(seen.document(grouped=True))
        screen.show(*seen.parts(grouped=True), "Nothing was redriven: this is what would be.")
        return
    options = BatchOptions(
        cascade=cascade,
        max_rounds=max_rounds,
        partitions=partitions,
        guard=guard,
        algorithm=algorithm.value,
        deduplication_store=stores.deduplication_store,
        token_store=stores.token_store,
    )
    check_out(out, master)
    check_batch(Place(store, table), options, batch_id, out, must_exist=True)
    chosen = batch_id or new_batch_id()
    how_to_go_on = f"go on with: {command_with('--batch-id', chosen)}"
    screen.note(f"Batch {chosen}: if it stops before its end, {how_to_go_on}")
    stopped = f"Stopped. Nothing is lost: {how_to_go_on}"
    with working(master, log_file, when_stopped=stopped) as (spark, progress):
        progress.step("Choosing the letters")
        batch = Batch(spark, loaded, store, table, out, replace(options, step=progress.step))
        with resumable(chosen, store, table):
            result = batch.redrive(wanted, chosen)
        report = BatchReport.of(result)
        progress.done()
        screen.give(report.document())
        screen.show(*report.parts())


async def _look(table: Table, wanted: Wanted) -> LettersReport:
    """Count what would be redriven, and check the edits as a redrive does."""
    report = LettersReport(0)
    async for found in find_letters(table, wanted.selection):
        if wanted.takes(found):
            wanted.edits.mended(found)
            report.count_only(found)
    wanted.edits.check_used()
    return report
