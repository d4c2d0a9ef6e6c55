"""`consistent letters`, `redrive` and `discard`: list dead letters, handle them again, or give them up."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from eventstore import Table
from runtime.batch_options import BatchOptions
from runtime.cli.batch_command import BatchChoices, BatchCommand
from runtime.cli.checks import Place, check_batch, check_file, check_out, load_app, on_table, require_table
from runtime.cli.console import Screen, counted
from runtime.cli.dead_letters import AllOption, LetterOptions, LettersReport
from runtime.cli.options import AppSpec, AsJson, Limit, StoreUrl, TableName, options_of
from runtime.dead_letters import Edits, Selection, Wanted, find_letters, streams_with_letters, to_line
from runtime.dead_letters import discard as give_up
from runtime.errors import UsageError
from runtime.retries import RetryPolicy

Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
DiscardDryRun = Annotated[
    bool, typer.Option("--dry-run", help="Write nothing, and say what would be discarded.")
]


def discard(
    *,
    store: StoreUrl,
    table: TableName,
    chosen: LetterOptions,
    all_: AllOption = False,
    yes: Yes = False,
    dry_run: DiscardDryRun = False,
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
    report = on_table(store, table, lambda opened: _preview_discard(opened, selection))
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


async def _preview_discard(table: Table, selection: Selection) -> LettersReport:
    report = LettersReport(0)
    async for found in find_letters(table, selection):
        report.count_only(found)
    return report


# `consistent letters`: which refused deliveries wait to be redriven.

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


# `consistent redrive`: a batch over letters.

EditOption = Annotated[
    Path | None,
    typer.Option(
        "--edit",
        metavar="FILE",
        dir_okay=False,
        exists=True,
        help="Lines that `consistent letters --export` wrote, with messages mended: each is handled in place of its "
        "letter's. Without other choices, these letters are redriven.",
    ),
]
RedriveDryRun = Annotated[
    bool, typer.Option("--dry-run", help="Write nothing, and say what would be redriven.")
]


def redrive(
    *,
    app: AppSpec,
    batch: BatchChoices,
    chosen: LetterOptions,
    all_: AllOption = False,
    edit: EditOption = None,
    dry_run: RedriveDryRun = False,
    given: Annotated[dict[str, Any], options_of(BatchOptions, "guard", "algorithm")],
    as_json: AsJson = False,
) -> None:
    r"""Handle letters again, once their cause is mended, each in its own handler.

        consistent redrive --app samples.shooting_range:app --cascade \
            --store sqlite:///store.db --table games --out outcomes --all

    A redrive is a batch. A letter that is processed is a letter no more; one that is refused again stays, with the new
    reason. Letters of one stream are handled in the order in which they came. Which letters they are is decided once:
    a redrive that was stopped goes on with the same ones when it is run again with its id.
    """
    is_chosen = all_ or edit is not None or batch.batch_id is not None
    selection = chosen.selection(must_choose=not is_chosen)
    edits = Edits(()) if edit is None else Edits.of(edit.read_bytes())
    wanted = Wanted(selection, edits, only_edited=selection.is_all and not all_ and edit is not None)
    loaded = load_app(app)
    options = batch.options(**given)
    require_table(*batch.states)
    screen = Screen(as_json)
    if dry_run:
        _show_what_would_be(batch.states, wanted, screen)
        return
    check_out(batch.out, batch.spark.place)
    check_batch(loaded, batch.states, options, batch.batch_id, batch.out, must_exist=True)
    command = BatchCommand.announced(loaded, batch, options, screen)
    with command.carried_out("Choosing the letters", lambda new, id_: new.redrive(wanted, id_)) as done:
        screen.put(done.report)


def _show_what_would_be(states: Place, wanted: Wanted, screen: Screen) -> None:
    seen = on_table(*states, lambda opened: _preview_redrive(opened, wanted))
    screen.give(seen.document(grouped=True))
    screen.show(*seen.parts(grouped=True), "Nothing was redriven: this is what would be.")


async def _preview_redrive(table: Table, wanted: Wanted) -> LettersReport:
    """Count what would be redriven, and check the edits as a redrive does."""
    report = LettersReport(0)
    async for found in find_letters(table, wanted.selection):
        if wanted.takes(found):
            wanted.edits.mended(found)
            report.count_only(found)
    wanted.edits.check_used()
    return report
