"""`consistent check`: whether all rows of a table can be read, and agree with each other."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from runtime.cleanup.checking import Checked, check_table
from runtime.cli.console import Screen
from runtime.cli.failures import FAILED
from runtime.cli.option_groups import ScanOptions
from runtime.cli.options import AsJson, Limit, StoreUrl, TableName
from runtime.cli.places import Place
from runtime.cli.reports.tables import counted, make_table

Repair = Annotated[
    bool,
    typer.Option(
        "--repair",
        help="Rebuild what is derived from other rows: the index of message ids, counts, markers.",
    ),
]


def check(
    *,
    store: StoreUrl,
    table: TableName,
    repair: Repair = False,
    scan: ScanOptions,
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
    found = Checked()
    scan.scan(
        Place(store, table),
        partial(check_table, repair=repair),
        lambda document: found.update(Checked.of(document)),
        step="Checking",
        stopped="Stopped. What was repaired stays so: run the same command again for the rest.",
    )
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
