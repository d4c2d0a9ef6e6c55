"""`consistent check`: whether all rows of a table can be read, and agree with each other."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from eventstore import connect
from runtime.cleanup.checking import Checked, check_table
from runtime.cli.console import Screen
from runtime.cli.failures import FAILED
from runtime.cli.masters import place_of_work
from runtime.cli.options import AsJson, Limit, LogFile, OnSpark, Remote, StoreUrl, TableName
from runtime.cli.places import Place
from runtime.cli.reports.tables import counted, make_table
from runtime.cli.sessions import working
from runtime.cli.stores import check_table as check_place
from runtime.cli.stores import on_table

Repair = Annotated[
    bool,
    typer.Option(
        "--repair",
        help="Rebuild what is derived from other rows: the index of message ids, counts, markers.",
    ),
]
_STOPPED = "Stopped. What was repaired stays so: run the same command again for the rest."


def check(
    *,
    store: StoreUrl,
    table: TableName,
    repair: Repair = False,
    master: OnSpark = None,
    remote: Remote = None,
    log_file: LogFile = None,
    limit: Limit = 50,
    as_json: AsJson = False,
) -> None:
    r"""Read a table whole, and say which rows do not decode or do not agree with each other.

        consistent check --store sqlite:///store.db --table games

    Nothing is written without --repair. That rebuilds what is derived from other rows: the index of message ids, the
    counts of letters and entries, and markers; it deletes events below the watermark. A stream with any other fault is
    left as it is: restore it from an export.

    It reads the whole table: one request for each 1,000 rows or 4 MiB, and two more for what is damaged. With --master
    or --remote the table is split by its keys, which costs two more for each 1,000 objects, and checked on all workers.
    The exit code is 1 when something is damaged.
    """
    place = place_of_work(master, remote)
    if place is None:
        found = on_table(store, table, lambda opened: check_table(opened, repair=repair))
    else:
        check_place(store, table)
        found = _on_spark(Place(store, table), place, log_file, repair=repair)
    screen = Screen(as_json)
    screen.give(found.document())
    screen.show(f"{counted(found.rows, 'row')} of {counted(found.streams, 'stream')} and others were read.")
    for title, faults in (("Repaired", found.repaired), ("Damaged", found.faults)):
        if faults:
            rows = [(each.stream, each.row, each.problem, each.repair) for each in faults[: limit or None]]
            screen.show(make_table(title, ("stream", "row", "what", "can be repaired"), rows))
    if not found.damaged:
        return
    screen.note(f"{counted(found.damaged, 'fault')}. Restore what --repair cannot rebuild from an export.")
    raise typer.Exit(FAILED)


def _on_spark(states: Place, master: str, log_file: Path | None, *, repair: bool) -> Checked:
    from runtime.spark.check import check_on_spark
    from runtime.spark.workers.connection import TablePlace, check_scope

    check_scope(connect(states.store).scope, master)
    with working(master, log_file, when_stopped=_STOPPED) as (spark, progress):
        progress.step("Checking")
        found = check_on_spark(spark, TablePlace(*states), repair=repair)
        progress.done()
        return found
