"""`consistent truncate`: cut old versions of all streams of a table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from eventstore import Table, connect
from runtime.algorithms.state_based.truncation_rules import TruncationRules
from runtime.batches.open_batches import OpenBatches
from runtime.cleanup.lease import Leases
from runtime.cleanup.policies import NO_RULES, Policies
from runtime.cli.console import Screen
from runtime.cli.failures import NotPossibleError
from runtime.cli.options import (
    DEFAULT_MASTER,
    AcknowledgedAfter,
    Age,
    AllowUndated,
    AsJson,
    GiveUpLetters,
    KeepLast,
    LogFile,
    Master,
    StoreUrl,
    TableName,
    Window,
)
from runtime.cli.reports.tables import counted
from runtime.cli.reports.truncation import TruncationReport
from runtime.cli.sessions import working
from runtime.cli.stores import check_table, on_table
from runtime.clock import system_clock
from runtime.errors import UsageError

AllowYoung = Annotated[
    bool,
    typer.Option(
        "--allow-young", help="Cut versions younger than 24h too, whose messages may well come again."
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Write nothing, and say what would be cut.")]
TakeOver = Annotated[
    bool,
    typer.Option(
        "--take-over", help="Begin although the lease of another clean-up has not expired; that one stops."
    ),
]
RequestsPerSecond = Annotated[
    float | None,
    typer.Option(
        "--max-requests-per-second", metavar="N", min=0.1, help="All workers together make no more requests."
    ),
]
ReportFolder = Annotated[
    Path | None,
    typer.Option(
        "--report",
        metavar="DIR",
        show_default=False,
        help="Write a row for each stream that is cut or held to this new folder, as Parquet.",
    ),
]
ExportFolder = Annotated[
    Path | None,
    typer.Option(
        "--export",
        metavar="DIR",
        file_okay=False,
        show_default=False,
        help="Write versions to Parquet files in this folder, and cut them once those were read back.",
    ),
]


def truncate(
    *,
    store: StoreUrl,
    table: TableName,
    older_than: Age = None,
    keep_last: KeepLast = None,
    redelivery_window: Window = "0s",  # type: ignore[assignment] # parsed like what is typed
    allow_undated: AllowUndated = False,
    allow_young: AllowYoung = False,
    acknowledged_after: AcknowledgedAfter = None,
    give_up_letters_older_than: GiveUpLetters = None,
    dry_run: DryRun = False,
    take_over: TakeOver = False,
    max_requests_per_second: RequestsPerSecond = None,
    report: ReportFolder = None,
    export: ExportFolder = None,
    master: Master = DEFAULT_MASTER,
    log_file: LogFile = None,
    as_json: AsJson = False,
) -> None:
    r"""Cut old versions of all streams of a table, by age, by number or both, or by the policies of the table.

        consistent truncate --store sqlite:///store.db --table games \
            --older-than 30d --keep-last 100 --dry-run

    A version goes only when every rule given lets it. The newest run of a stream stays, and so do versions of batches
    that are not published, and those younger than 24h. The newest state is never lost, but a message whose version
    was cut can no longer be told from a new one: it is too_late when it comes again.

    Versions of single messages with outputs stay until their consumer says that these are out (see docs/operations.md),
    or you promise it with --acknowledged-after: longer ago than the queue keeps a message.

    A letter that waits holds its stream: versions are kept that are not older, so that a redrive is never too late.
    --give-up-letters-older-than is the way out.

    Without rules the policies count that `consistent policy set` has kept in the table; rules given here count in
    place of them, but for holds: what is held is never cut.

    With --export versions are written to files first, and cut only once these were read back; `consistent show
    --export` reads them.

    One query for each stream, three more for one that is cut, and one transaction for each 99 rows. One at a time
    truncates a table. Stopped at any moment it leaves streams that can be read; run it again to finish.
    """
    rules: dict[str, Any] = {
        "older_than": older_than,
        "keep_last": keep_last,
        "redelivery_window": redelivery_window,
        "allow_undated": allow_undated,
        "allow_young": allow_young,
    }
    screen = Screen(as_json)
    opened = connect(store)
    check_table(store, table)
    is_given = _check_rules(store, table, rules)
    if report is not None and report.exists():
        raise UsageError(f"{report} is there already: name a new folder for the report.")
    if not dry_run:
        on_table(store, table, lambda found: _check_lease(found, screen, take_over=take_over))
    from runtime.spark.truncate import truncate as cut
    from runtime.spark.workers.connection import check_scope

    check_scope(opened.scope, master)
    when_stopped = "Stopped. All streams can be read: run it again to finish."
    with working(master, log_file, when_stopped=when_stopped) as (spark, progress):
        by = "" if is_given else " by the policies of the table"
        progress.step(f"Looking through the streams{by}" if dry_run else f"Cutting{by}")
        done = cut(
            spark,
            store=store,
            table=table,
            acknowledged_after=acknowledged_after,
            give_up_letters_older_than=give_up_letters_older_than,
            dry_run=dry_run,
            take_over=take_over,
            max_requests_per_second=max_requests_per_second,
            report=None if report is None else str(report),
            export=None if export is None else str(export),
            show=progress.show_streams,
            **rules,
        )
        found = TruncationReport(done.counts, done.requests, dry_run)
        progress.done()
        screen.give(found.document())
        screen.show(*found.parts())
    if found.damaged:
        raise NotPossibleError(
            f"{counted(found.damaged, 'stream')} could not be read, and nothing was cut there."
        )


def _check_rules(store: str, table: str, rules: dict[str, Any]) -> bool:
    """Refuse before Spark is started what cannot be; say whether rules are given, and not policies to be applied."""
    if any(rules.values()) or rules["older_than"] is not None:
        TruncationRules.of(system_clock(), OpenBatches(), **rules)
        return True
    if not on_table(store, table, lambda found: Policies(found, system_clock).has_rules()):
        raise UsageError(NO_RULES)
    return False


async def _check_lease(table: Table, screen: Screen, *, take_over: bool) -> None:
    leases = Leases(table, system_clock)
    if not take_over:
        await leases.check_free()
        return
    held = await leases.find()
    if held is not None:
        screen.note(f"Taking over from {held}. It stops before its next streams.")
