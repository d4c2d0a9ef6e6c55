"""`consistent redrive`: a batch over letters."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from eventstore import Table
from runtime.algorithms.letters.lines import Edits, Wanted
from runtime.algorithms.letters.reading import find_letters
from runtime.cli.apps import load_app
from runtime.cli.batch_command import AlgorithmOption, BatchChoices, BatchCommand, Guard
from runtime.cli.beginning import check_batch
from runtime.cli.console import Screen
from runtime.cli.letter_selection import AllOption, LetterOptions
from runtime.cli.options import AlgorithmChoice, AppSpec, AsJson
from runtime.cli.places import Place, check_out
from runtime.cli.reports.letters import LettersReport
from runtime.cli.stores import check_table, on_table

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
DryRun = Annotated[bool, typer.Option("--dry-run", help="Write nothing, and say what would be redriven.")]


def redrive(
    *,
    app: AppSpec,
    batch: BatchChoices,
    chosen: LetterOptions,
    all_: AllOption = False,
    edit: EditOption = None,
    dry_run: DryRun = False,
    guard: Guard = False,
    algorithm: AlgorithmOption = AlgorithmChoice.STATE_BASED,
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
    options = batch.options(algorithm.value, guard=guard)
    check_table(*batch.states)
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
    seen = on_table(*states, lambda opened: _look(opened, wanted))
    screen.give(seen.document(grouped=True))
    screen.show(*seen.parts(grouped=True), "Nothing was redriven: this is what would be.")


async def _look(table: Table, wanted: Wanted) -> LettersReport:
    """Count what would be redriven, and check the edits as a redrive does."""
    report = LettersReport(0)
    async for found in find_letters(table, wanted.selection):
        if wanted.takes(found):
            wanted.edits.mended(found)
            report.count_only(found)
    wanted.edits.check_used()
    return report
