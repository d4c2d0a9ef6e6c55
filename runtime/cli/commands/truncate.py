"""`consistent truncate`: cut old versions of all streams of a table."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from eventstore import Table, connect
from runtime.algorithms.state_based.truncation_rules import TruncationRules
from runtime.batches.open_batches import OpenBatches
from runtime.cleanup.lease import Leases
from runtime.cleanup.policies import NO_RULES, Policies
from runtime.cli.console import Screen
from runtime.cli.failures import NotPossibleError
from runtime.cli.option_groups import SparkOptions
from runtime.cli.options import (
    AcknowledgedAfter,
    Age,
    AllowUndated,
    AsJson,
    GiveUpLetters,
    KeepLast,
    StoreUrl,
    TableName,
    Window,
)
from runtime.cli.places import Place
from runtime.cli.reports.tables import counted
from runtime.cli.reports.truncation import TruncationReport
from runtime.cli.stores import check_table, on_table
from runtime.clock import system_clock
from runtime.errors import UsageError

AllowYoung = Annotated[
    bool,
    typer.Option(
        "--allow-young", help="Cut versions younger than 24h too, whose messages may well be redelivered."
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
        help="Write versions and letters to files in this folder, and cut them once those were read back.",
    ),
]


@dataclass(frozen=True)
class Rules:
    """By which rules versions are cut."""

    older_than: Age = None
    keep_last: KeepLast = None
    redelivery_window: Window = "0s"  # type: ignore[assignment] # parsed like what is typed
    allow_undated: AllowUndated = False
    allow_young: AllowYoung = False

    def check(self, states: Place) -> bool:
        """Say whether rules are given, in place of the policies of the table.

        Raises `UsageError` for rules that cannot be, and when there are neither rules nor policies.
        """
        rules = asdict(self)
        if any(rules.values()) or self.older_than is not None:
            TruncationRules.of(system_clock(), OpenBatches(), **rules)
            return True
        if not on_table(*states, lambda found: Policies(found, system_clock).has_rules()):
            raise UsageError(NO_RULES)
        return False


@dataclass(frozen=True)
class Work:
    """How the work is done, and what is promised and written for it."""

    acknowledged_after: AcknowledgedAfter = None
    give_up_letters_older_than: GiveUpLetters = None
    dry_run: DryRun = False
    take_over: TakeOver = False
    max_requests_per_second: RequestsPerSecond = None
    report: ReportFolder = None
    export: ExportFolder = None

    def check_report(self) -> None:
        """Raise `UsageError` when there is something where the report is to be written."""
        if self.report is not None and self.report.exists():
            raise UsageError(f"{self.report} is there already: name a new folder for the report.")


def truncate(
    *,
    store: StoreUrl,
    table: TableName,
    rules: Rules,
    work: Work,
    spark: SparkOptions,
    as_json: AsJson = False,
) -> None:
    r"""Cut old versions of all streams of a table, by age, by number or both, or by the policies of the table.

        consistent truncate --store sqlite:///store.db --table games \
            --older-than 30d --keep-last 100 --dry-run

    A version goes only when every rule given lets it. The newest run of a stream stays, and so do versions of batches
    that are not published, and those younger than 24h. The newest state is never lost, but a message whose version
    was cut can no longer be told from a new one: it is too_late when it is redelivered.

    Versions of single messages with outputs stay until their consumer says that these are published (see
    docs/operations.md), or you promise it with --acknowledged-after: longer ago than the queue keeps a message.

    A letter that waits holds its stream: versions are kept that are not older, so that a redrive is never too late.
    --give-up-letters-older-than is the way out.

    Without rules the policies count that `consistent policy set` has kept in the table; rules given here count in
    place of them, but for holds: what is held is never cut.

    With --export versions are written to files first, and cut only once these were read back; `consistent show
    --export` and `consistent verify --export` read them. So are letters that are given up, as lines of JSON.

    One query for each stream, three more for one that is cut, and one transaction for each 99 rows. One at a time
    truncates a table. Stopped at any moment it leaves streams that can be read; run it again to finish.
    """
    screen = Screen(as_json)
    by = "" if _check(Place(store, table), rules, work, spark, screen) else " by the policies of the table"
    from runtime.spark.truncation import truncate as cut

    with spark.working("Stopped. All streams can be read: run it again to finish.") as (session, progress):
        progress.step(f"{'Looking through the streams' if work.dry_run else 'Cutting'}{by}")
        done = cut(
            session,
            store=store,
            table=table,
            **asdict(rules),
            **asdict(work),
        )
        progress.done()
        found = TruncationReport(done.counts, done.requests, work.dry_run)
        screen.put(found)
    if found.damaged:
        raise NotPossibleError(
            f"{counted(found.damaged, 'stream')} could not be read, and nothing was cut there."
        )


def _check(states: Place, rules: Rules, work: Work, spark: SparkOptions, screen: Screen) -> bool:
    """Refuse what cannot be done before Spark is started; say whether rules are given, see `Rules.check`."""
    check_table(*states)
    is_given = rules.check(states)
    work.check_report()
    if not work.dry_run:
        on_table(*states, lambda found: _check_lease(found, screen, take_over=work.take_over))
    from runtime.spark.workers.connection import check_scope

    check_scope(connect(states.store).scope, spark.place)
    return is_given


async def _check_lease(table: Table, screen: Screen, *, take_over: bool) -> None:
    leases = Leases(table, system_clock)
    if not take_over:
        await leases.check_free()
        return
    held = await leases.find()
    if held is not None:
        screen.note(f"Taking over from {held}. It stops before its next streams.")
