"""`consistent truncate`: cut old versions of all streams of a table."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from eventstore import connect
from runtime.algorithms.state_based.truncation import TruncationRules
from runtime.batches.open_batches import OpenBatches
from runtime.cli.console import Screen
from runtime.cli.options import DEFAULT_MASTER, Age, AsJson, LogFile, Master, StoreUrl, TableName, Window
from runtime.cli.reports.truncation import TruncationReport
from runtime.cli.sessions import working
from runtime.cli.stores import check_table
from runtime.clock import system_clock

KeepLast = Annotated[
    int | None,
    typer.Option("--keep-last", metavar="N", min=1, help="Cut all but the newest N versions of each stream."),
]
AllowUndated = Annotated[
    bool,
    typer.Option(
        "--allow-undated",
        help="Cut versions without enqueued_at too; every unknown message without one is too late there afterwards.",
    ),
]
AllowYoung = Annotated[
    bool,
    typer.Option(
        "--allow-young", help="Cut versions younger than 24h too, whose messages may well come again."
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Write nothing, and say what would be cut.")]


def truncate(
    *,
    store: StoreUrl,
    table: TableName,
    older_than: Age = None,
    keep_last: KeepLast = None,
    redelivery_window: Window = "0s",  # type: ignore[assignment] # parsed like what is typed
    allow_undated: AllowUndated = False,
    allow_young: AllowYoung = False,
    dry_run: DryRun = False,
    master: Master = DEFAULT_MASTER,
    log_file: LogFile = None,
    as_json: AsJson = False,
) -> None:
    r"""Cut old versions of all streams of a table, by age, by number or both.

        consistent truncate --store sqlite:///store.db --table games \
            --older-than 30d --keep-last 100 --dry-run

    A version goes only when every rule given lets it. The newest run of a stream stays, and so do versions of batches
    that are not published, and those younger than 24h. The newest state is never lost, but a message whose version
    was cut can no longer be told from a new one: it is too_late when it comes again.

    One query for each stream, two more for one that is cut, and one transaction for each 99 rows. Stopped at any
    moment it leaves streams that can be read; run it again to finish.
    """
    rules: dict[str, Any] = {
        "older_than": older_than,
        "keep_last": keep_last,
        "redelivery_window": redelivery_window,
        "allow_undated": allow_undated,
        "allow_young": allow_young,
    }
    TruncationRules.of(
        system_clock(), OpenBatches(), **rules
    )  # what cannot be is refused before Spark is started
    opened = connect(store)
    check_table(store, table)
    from runtime.spark.summaries import count_truncated
    from runtime.spark.truncate import truncate as cut
    from runtime.spark.workers.connection import check_scope

    check_scope(opened.scope, master)
    screen = Screen(as_json)
    when_stopped = "Stopped. All streams can be read: run it again to finish."
    with working(master, log_file, when_stopped=when_stopped) as (spark, progress):
        progress.step("Looking through the streams" if dry_run else "Cutting")
        cut_streams = cut(spark, store=store, table=table, dry_run=dry_run, **rules)
        report = TruncationReport(count_truncated(cut_streams), dry_run)
        progress.done()
        screen.give(report.document())
        screen.show(*report.parts())
