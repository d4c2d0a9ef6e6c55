"""`consistent discard`: give letters up."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from eventstore import Table
from runtime.algorithms.letters.discarding import discard as give_up
from runtime.algorithms.letters.reading import find_letters
from runtime.algorithms.letters.selection import Selection
from runtime.cli.console import Screen
from runtime.cli.letter_selection import AllOption, LetterOptions
from runtime.cli.options import AsJson, StoreUrl, TableName
from runtime.cli.reports.letters import LettersReport
from runtime.cli.reports.tables import counted
from runtime.cli.stores import on_table
from runtime.errors import UsageError
from runtime.retries import RetryPolicy

Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Write nothing, and say what would be discarded.")]


def discard(
    *,
    store: StoreUrl,
    table: TableName,
    chosen: LetterOptions,
    all_: AllOption = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    r"""Give letters up: their deliveries are deleted, and can never be redriven.

        consistent discard --store sqlite:///store.db --table games \
            --reason invalid_body --older-than 30d --dry-run

    A redelivery of such a message stays refused, with the reason that its letter had. What waits behind a letter that
    parks its stream is free once that is discarded: redrive it, or discard it too. It costs what `consistent letters`
    does, and a query and a transaction for each stream that has such letters.
    """
    selection = chosen.selection(must_choose=not all_)
    screen = Screen(as_json)
    report = on_table(store, table, lambda opened: _look(opened, selection))
    screen.show(*report.parts(grouped=True))
    if dry_run or not report.count:
        screen.give({**report.document(grouped=True), "discarded": 0})
        return
    if not yes:
        _ask(report.count)
    count = on_table(store, table, lambda opened: give_up(opened, selection, RetryPolicy()))
    screen.give({**report.document(grouped=True), "discarded": count})
    screen.show(f"{counted(count, 'letter')} discarded.")


def _ask(count: int) -> None:
    """Let the user confirm. Raises `UsageError` where there is nobody to ask."""
    if not sys.stdin.isatty():
        raise UsageError("Discarding cannot be undone: say --yes, or look first with --dry-run.")
    typer.confirm(f"Discard {counted(count, 'letter')} for ever?", abort=True, err=True)


async def _look(table: Table, selection: Selection) -> LettersReport:
    report = LettersReport(0)
    async for found in find_letters(table, selection):
        report.count_only(found)
    return report
