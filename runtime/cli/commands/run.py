"""`consistent run`: a batch over a message log."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from eventstore import connect
from runtime.batches.dead_letter_limit import DeadLetterLimit
from runtime.cli.apps import load_app
from runtime.cli.beginning import check_batch
from runtime.cli.console import Screen
from runtime.cli.failures import TOO_MANY_DEAD_LETTERS, NotPossibleError
from runtime.cli.invocation import about_letters, command_with, resumable
from runtime.cli.message_logs import check_log
from runtime.cli.options import (
    DEFAULT_MASTER,
    AlgorithmChoice,
    AppSpec,
    AsJson,
    DeduplicationStoreUrl,
    DeduplicationTableName,
    Format,
    Late,
    LogFile,
    Master,
    MaxRounds,
    Messages,
    OnDifference,
    OnError,
    Partitions,
    Source,
    StoreUrl,
    TableName,
    TokenStoreUrl,
    TokenTableName,
)
from runtime.cli.places import Named, Place, Stores, check_out
from runtime.cli.reports.batch import BatchReport
from runtime.cli.reports.tables import counted
from runtime.cli.sessions import working
from runtime.errors import UsageError

Out = Annotated[
    str,
    typer.Option(
        "--out",
        metavar="DIR",
        show_default=False,
        help="Where outcomes are written: DIR/batch_id=ID/round=N.",
    ),
]
Cascade = Annotated[
    bool,
    typer.Option("--cascade", help="Handle the outputs too, round by round, until no handler takes any."),
]
BatchId = Annotated[
    str | None,
    typer.Option(
        "--batch-id",
        metavar="ID",
        show_default=False,
        help="Go on with the batch of this id, or begin one under it; by default a new id is made and printed.",
    ),
]
LateOption = Annotated[
    Late,
    typer.Option(
        "--late",
        help="What to do with an unknown message that is not newer than its stream's horizon: it may be a "
        "duplicate of a version that was cut, and `process` may handle it twice.",
    ),
]
OnErrorOption = Annotated[
    OnError,
    typer.Option(
        "--on-error",
        help="After a dead letter, go on with its stream, or hold back what is new in it: within the round "
        "(`stop-stream`), or in all batches until it is redriven or discarded (`park`).",
    ),
]
OnDifferenceOption = Annotated[
    OnDifference,
    typer.Option(
        "--on-difference",
        help="When the replay of a duplicate differs from what was recorded: make it a dead letter, or fail the batch.",
    ),
]
MaxDeadLetters = Annotated[
    DeadLetterLimit | None,
    typer.Option(
        "--max-dead-letters",
        parser=DeadLetterLimit.parse,
        metavar="N|P%",
        help="End with exit code 3 when more deliveries than 10, or than 0.5%, are dead letters.",
    ),
]
Strict = Annotated[
    bool,
    typer.Option(
        "--strict", help="With --max-dead-letters: hold a batch with more of them back, unpublished."
    ),
]
MustExist = Annotated[
    bool, typer.Option("--must-exist", help="Refuse a table that is not there yet, instead of making it.")
]
Guard = Annotated[
    bool,
    typer.Option(
        "--guard",
        help="Make a dead letter of each message whose handler looks at a clock, at chance or at the outside other "
        "than through its context; costs a few percent.",
    ),
]

AlgorithmOption = Annotated[
    AlgorithmChoice,
    typer.Option(
        "--algorithm",
        help="How a message takes effect exactly once; the same for all batches of a table. With tokens, the log "
        "comes from `consistent tokens issue`.",
    ),
]


def run(
    *,
    app: AppSpec,
    messages: Messages,
    store: StoreUrl,
    table: TableName,
    out: Out,
    must_exist: MustExist = False,
    cascade: Cascade = False,
    batch_id: BatchId = None,
    log_format: Format = None,
    source: Source = None,
    late: LateOption = Late.REFUSE,
    on_error: OnErrorOption = OnError.CONTINUE,
    on_difference: OnDifferenceOption = OnDifference.DEAD_LETTER,
    max_dead_letters: MaxDeadLetters = None,
    strict: Strict = False,
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
    r"""Run the handlers of an app over a message log with Spark, and write what came of each delivery.

        consistent run --app samples.shooting_range:app --messages log.parquet \
            --cascade --out outcomes --store sqlite:///store.db --table games

    Each new message adds one version to its stream; a duplicate gives the outputs of its first delivery again and
    stores nothing. One query and one transaction for each stream, and about ten seconds to start Spark.

    A delivery that cannot be handled is a dead letter with its reason: it costs no other message its outcome, and the
    exit code is 0 all the same, or 3 when there are more than --max-dead-letters. A batch that was stopped goes on
    where it was when it is run again with its id, so keep the log until then.
    """
    if strict and max_dead_letters is None:
        raise UsageError("Say with --max-dead-letters how many dead letters hold the batch back.")
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
    options = BatchOptions(
        cascade=cascade,
        max_rounds=max_rounds,
        late=late.value,
        on_error=on_error.value,
        on_difference=on_difference.value,
        source=source,
        log_format=None if log_format is None else log_format.value,
        partitions=partitions,
        guard=guard,
        algorithm=algorithm.value,
        deduplication_store=stores.deduplication_store,
        token_store=stores.token_store,
        max_dead_letters=str(max_dead_letters) if strict else None,
    )
    check_log(messages, master)
    check_out(out, master)
    screen = Screen(as_json)
    is_there = check_batch(Place(store, table), options, batch_id, out, must_exist=must_exist)
    chosen = batch_id or new_batch_id()
    how_to_go_on = f"go on with: {command_with('--batch-id', chosen)}"
    screen.note(f"Batch {chosen}: if it stops before its end, {how_to_go_on}")
    if not is_there:
        screen.note(f"New table: there is no {table} in {connect(store).url} yet, and this batch makes it.")
    with working(master, log_file, when_stopped=f"Stopped. Nothing is lost: {how_to_go_on}") as (
        spark,
        progress,
    ):
        progress.step("Reading the log")
        shown = replace(options, step=progress.step)
        with resumable(chosen, store, table):
            result = Batch(spark, loaded, store, table, out, shown).run(messages, chosen)
        progress.step("Counting outcomes")
        report = BatchReport.of(result)
        progress.done()
        screen.give(report.document())
        screen.show(*report.parts())
        if report.dead_letters:
            screen.show(
                "Dead letters wait in the table. To list them, and once their cause is mended, handle them:"
            )
            screen.show(f"  {about_letters('letters', store, table)}")
            redrive = about_letters("redrive", store, table, "--app", app, "--out", out, "--all")
            screen.show(f"  {redrive}")
    _judge(screen, report, max_dead_letters)


def _judge(screen: Screen, report: BatchReport, limit: DeadLetterLimit | None) -> None:
    """Say what the dead letters of a batch mean, and exit with 3 when there are too many."""
    if not report.dead_letters:
        return
    damaged = report.damaged
    if damaged:
        raise NotPossibleError(
            f"{counted(damaged, 'delivery')} met streams that cannot be read (stream_damaged). "
            f"All others are done; `consistent check` says where the table is damaged."
        )
    done = "A dead letter changes no state, and the batch is done all the same"
    if limit is None or not limit.is_exceeded(report.record.counts):
        screen.show(f"{done}: the exit code is 0.")
        return
    screen.note(f"{done}, but these are more than --max-dead-letters {limit}: the exit code is 3.")
    raise typer.Exit(TOO_MANY_DEAD_LETTERS)
