"""`consistent letters`: which refused deliveries wait to be redriven."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from eventstore import Table
from runtime.algorithms.letters.lines import to_line
from runtime.algorithms.letters.reading import find_letters, streams_with_letters
from runtime.algorithms.letters.selection import Selection
from runtime.cli.console import Screen
from runtime.cli.letter_selection import LetterOptions
from runtime.cli.options import AsJson, Limit, StoreUrl, TableName
from runtime.cli.places import check_file
from runtime.cli.reports.letters import LettersReport
from runtime.cli.reports.tables import counted
from runtime.cli.stores import on_table

Group = Annotated[
    bool,
    typer.Option("--group", help="Show groups of one reason, handler, type and error in place of letters."),
]
Export = Annotated[
    Path | None,
    typer.Option(
        "--export",
        metavar="FILE",
        dir_okay=False,
        help="Write all letters that are asked for to a file, as JSON lines that `consistent redrive --edit` takes.",
    ),
]


def letters(
    *,
    store: StoreUrl,
    table: TableName,
    chosen: LetterOptions,
    group: Group = False,
    limit: Limit = 20,
    export: Export = None,
    as_json: AsJson = False,
) -> None:
    r"""List the letters of a table: deliveries that were refused, and wait to be redriven or discarded.

        consistent letters --store sqlite:///store.db --table games
        consistent letters --store sqlite:///store.db --table games \
            --reason invalid_body --export letters.jsonl

    It needs no Spark: two requests for each 1,000 streams, and one for each stream that has letters. A letter that is
    behind another waits until that is processed or discarded, as it parks the stream.
    """
    check_file(export)
    selection = chosen.selection()
    report = LettersReport(limit)
    on_table(store, table, lambda opened: _read(opened, selection, report, export))
    screen = Screen(as_json)
    screen.give(report.document(grouped=group))
    screen.show(*report.parts(grouped=group))
    if export is not None:
        screen.note(f"Wrote {counted(report.count, 'letter')} to {export}.")


async def _read(table: Table, selection: Selection, report: LettersReport, export: Path | None) -> None:
    """Read the letters into a report, and write them to a file if one is given."""
    async for stream in streams_with_letters(table, selection):
        report.beyond_limit += stream.beyond_limit
    if export is None:
        async for found in find_letters(table, selection):
            report.add(found)
        return
    with export.open("w", encoding="utf-8") as file:
        async for found in find_letters(table, selection):
            report.add(found)
            file.write(f"{to_line(found)}\n")
