"""`consistent truncate`: cut old versions of all streams of a table."""

from __future__ import annotations

from dataclasses import asdict

from eventstore import Table, connect
from runtime.algorithms.state_based.truncation_rules import TruncationChoices
from runtime.batches.open_batches import OpenBatches
from runtime.cleanup.lease import Leases
from runtime.cleanup.policies import NO_RULES, Policies
from runtime.cli.console import Screen
from runtime.cli.failures import NotPossibleError
from runtime.cli.option_groups import SparkOptions
from runtime.cli.options import AsJson, StoreUrl, TableName
from runtime.cli.places import Place
from runtime.cli.reports.tables import counted
from runtime.cli.reports.truncation import TruncationReport
from runtime.cli.stores import check_table, on_table
from runtime.clock import system_clock
from runtime.errors import UsageError


def truncate(
    *,
    store: StoreUrl,
    table: TableName,
    choices: TruncationChoices,
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
    _check(Place(store, table), choices, spark, screen)
    from runtime.spark.truncation import truncate as cut

    with spark.working("Stopped. All streams can be read: run it again to finish.") as (session, progress):
        by = "" if choices.is_given else " by the policies of the table"
        progress.step(f"{'Looking through the streams' if choices.dry_run else 'Cutting'}{by}")
        done = cut(session, store=store, table=table, show=progress.show_streams, **asdict(choices))
        progress.done()
        found = TruncationReport(done.counts, done.requests, choices.dry_run)
        screen.put(found)
    if found.damaged:
        raise NotPossibleError(
            f"{counted(found.damaged, 'stream')} could not be read, and nothing was cut there."
        )


def _check(states: Place, choices: TruncationChoices, spark: SparkOptions, screen: Screen) -> None:
    """Refuse what cannot be done before Spark is started."""
    check_table(*states)
    if choices.is_given:
        choices.as_of(system_clock(), OpenBatches())
    elif not on_table(*states, lambda found: Policies(found, system_clock).has_rules()):
        raise UsageError(NO_RULES)
    if choices.report is not None and choices.report.exists():
        raise UsageError(f"{choices.report} is there already: name a new folder for the report.")
    if not choices.dry_run:
        on_table(*states, lambda found: _check_lease(found, screen, take_over=choices.take_over))
    from runtime.spark.workers.connection import check_scope

    check_scope(connect(states.store).scope, spark.place)


async def _check_lease(table: Table, screen: Screen, *, take_over: bool) -> None:
    leases = Leases(table, system_clock)
    if not take_over:
        await leases.check_free()
        return
    held = await leases.find()
    if held is not None:
        screen.note(f"Taking over from {held}. It stops before its next streams.")
