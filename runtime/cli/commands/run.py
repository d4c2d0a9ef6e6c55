"""`consistent run`: a batch over a message log."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from eventstore import connect
from runtime.apps import load_app
from runtime.cli.batch_report import BatchReport
from runtime.cli.console import Screen
from runtime.cli.options import (
    DEFAULT_MASTER,
    AppSpec,
    AsJson,
    Late,
    LogFile,
    LogFormat,
    Master,
    OnError,
    StoreUrl,
    TableName,
)
from runtime.cli.sessions import working
from runtime.errors import LogError

_HADOOP_SETTINGS = "HADOOP_CONF_DIR"
_PATTERN_SIGNS = "*?[{"

Messages = Annotated[
    str,
    typer.Option(
        "--messages",
        metavar="LOG",
        show_default=False,
        help="The message log: a file or folder with the columns message_id, type, body, and optionally "
        "business_id, sequence, enqueued_at, headers.",
    ),
]
Format = Annotated[
    LogFormat | None,
    typer.Option("--format", help="The log's format; by default what its name says, else Parquet."),
]
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
MaxRounds = Annotated[
    int,
    typer.Option("--max-rounds", metavar="N", min=1, help="Stop a cascade that has not ended after so many."),
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
Source = Annotated[
    str | None,
    typer.Option(
        "--source", metavar="NAME", help="Set the message ids of this log apart from those of other logs."
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
        "--on-error", help="After a dead letter, go on with its stream, or hold back what is new in it."
    ),
]
Partitions = Annotated[
    int | None,
    typer.Option(
        "--partitions",
        metavar="N",
        min=1,
        show_default="two for each core",
        help="Shuffle to so many partitions.",
    ),
]
Guard = Annotated[
    bool,
    typer.Option(
        "--guard",
        help="Make a dead letter of each message whose handler looks at a clock, at chance or at the outside other "
        "than through its context; costs a few percent.",
    ),
]


def run(
    *,
    app: AppSpec,
    messages: Messages,
    store: StoreUrl,
    table: TableName,
    out: Out,
    cascade: Cascade = False,
    batch_id: BatchId = None,
    log_format: Format = None,
    source: Source = None,
    late: LateOption = Late.REFUSE,
    on_error: OnErrorOption = OnError.CONTINUE,
    max_rounds: MaxRounds = 100,
    partitions: Partitions = None,
    guard: Guard = False,
    master: Master = DEFAULT_MASTER,
    log_file: LogFile = None,
    as_json: AsJson = False,
) -> None:
    r"""Run the handlers of an app over a message log with Spark, and write what came of each delivery.

        consistent run --app samples.shooting_range:app --messages log.parquet --cascade --out outcomes \
            --store sqlite:///store.db --table games

    Each new message adds one version to its stream; a duplicate gives the outputs of its first delivery again and
    stores nothing. One query and one transaction for each stream, and about ten seconds to start Spark.

    A delivery that cannot be handled is a dead letter with its reason: it costs no other message its outcome, and
    the exit code is 0 all the same. A batch that was stopped goes on where it was when it is run again with its
    id, so keep the log until then.
    """
    loaded = load_app(app)
    from runtime.spark.batch import Batch, BatchOptions, new_batch_id
    from runtime.spark.connection import check_scope

    check_scope(connect(store).scope, master)
    check_log(messages, master)
    chosen = batch_id or new_batch_id()
    how_to_go_on = f"run it again with --batch-id {chosen} to go on."
    screen = Screen(as_json)
    screen.note(f"Batch {chosen}: if it stops before its end, {how_to_go_on}")
    with working(master, log_file, when_stopped=f"Stopped. Nothing is lost: {how_to_go_on}") as (
        spark,
        progress,
    ):
        progress.step("Reading the log")
        options = BatchOptions(
            cascade=cascade,
            max_rounds=max_rounds,
            late=late.value,
            on_error=on_error.value,
            source=source,
            log_format=None if log_format is None else log_format.value,
            partitions=partitions,
            guard=guard,
            step=progress.step,
        )
        result = Batch(spark, loaded, store, table, out, options).run(messages, chosen)
        progress.step("Counting outcomes")
        report = BatchReport.of(result)
        progress.done()
        screen.give(report.document())
        screen.show(*report.parts())


def check_log(path: str, master: str) -> None:
    """Raise `LogError` when a log is not there, as far as that can be told without Spark."""
    is_elsewhere = ":" in path or _HADOOP_SETTINGS in os.environ or not master.startswith("local")
    if is_elsewhere or any(sign in path for sign in _PATTERN_SIGNS):
        return
    if not Path(path).exists():
        raise LogError(f"There is no log at {path}.")
