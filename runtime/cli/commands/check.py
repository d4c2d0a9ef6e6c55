"""`consistent check`: whether all rows of a table can be read, and agree with each other."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from runtime.cleanup.checking import check_table
from runtime.cli.console import Screen
from runtime.cli.failures import FAILED
from runtime.cli.options import AsJson, Limit, StoreUrl, TableName
from runtime.cli.reports.tables import counted, make_table
from runtime.cli.stores import on_table

Repair = Annotated[
    bool, typer.Option("--repair", help="Make rows of the index anew that do not agree with the runs.")
]


def check(
    *,
    store: StoreUrl,
    table: TableName,
    repair: Repair = False,
    limit: Limit = 50,
    as_json: AsJson = False,
) -> None:
    r"""Read a table whole, and say which rows do not decode or do not agree with each other.

        consistent check --store sqlite:///store.db --table games

    Nothing is written without --repair. That makes the index of message ids anew from the runs. A run, a tail or a
    header that cannot be read is not repaired, as it is nowhere else: restore it from an export.

    It reads the whole table: one request for each 1,000 rows or 4 MiB, and two more for what is damaged. The exit code
    is 1 when something is.
    """
    found = on_table(store, table, lambda opened: check_table(opened, repair=repair))
    screen = Screen(as_json)
    screen.give(
        {
            "rows": found.rows,
            "streams": found.streams,
            "faults": [asdict(each) for each in found.faults],
            "repaired": [asdict(each) for each in found.repaired],
        }
    )
    screen.show(f"{counted(found.rows, 'row')} of {counted(found.streams, 'stream')} and others were read.")
    for title, faults in (("Repaired", found.repaired), ("Damaged", found.faults)):
        if faults:
            rows = [(each.stream, each.row, each.problem, each.repair) for each in faults[: limit or None]]
            screen.show(make_table(title, ("stream", "row", "what", "can be repaired"), rows))
    if not found.faults:
        return
    number = counted(len(found.faults), "fault")
    screen.note(f"{number}. What --repair cannot make anew is to be restored from an export.")
    raise typer.Exit(FAILED)
