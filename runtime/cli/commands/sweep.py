"""`consistent sweep`: publish outputs whose worker died, and delete documents that do not count."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Annotated, Any

import typer

from eventstore import Table
from runtime.batch_options import BatchOptions
from runtime.batches.ledger import Ledger
from runtime.batches.record import STATE_BASED
from runtime.cli.apps import load_app
from runtime.cli.batch_command import BatchChoices, BatchCommand
from runtime.cli.beginning import check_batch
from runtime.cli.console import Screen
from runtime.cli.declared import options_of
from runtime.cli.durations import parse_duration
from runtime.cli.options import AsJson
from runtime.cli.places import check_out
from runtime.cli.reports.tables import counted
from runtime.cli.stores import check_table, on_table
from runtime.clock import system_clock
from runtime.documents.opening import existing_documents
from runtime.documents.store import DocumentStore
from runtime.documents.sweeping import DocumentSweep, Swept
from runtime.errors import UsageError
from runtime.retries import RetryPolicy, until_undisturbed

OlderThan = Annotated[
    int,
    typer.Option(
        "--older-than",
        parser=parse_duration,
        metavar="AGE",
        help="Leave out what was begun less long ago: it may still be in progress.",
    ),
]
SweptApp = Annotated[
    str,
    typer.Option(
        "--app",
        metavar="MODULE:ATTRIBUTE",
        show_default=False,
        help="With an outbox: the App with the handlers.",
    ),
]
SweptOut = Annotated[
    str,
    typer.Option(
        "--out",
        metavar="DIR",
        show_default=False,
        help="With an outbox: where outcomes are written.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class SweepChoices(BatchChoices):
    """What can be chosen for a sweep, which is a batch where there are outboxes only."""

    out: SweptOut = ""


def sweep(
    *,
    app: SweptApp = "",
    given: Annotated[dict[str, Any], options_of(BatchOptions, "algorithm")],
    batch: SweepChoices,
    older_than: OlderThan = "1h",  # type: ignore[assignment] # parsed like what is typed
    as_json: AsJson = False,
) -> None:
    r"""Finish what workers left behind that died: delete documents that do not count, or publish outputs.

        consistent sweep --documents documents \
            --store sqlite:///store.db --table games

    Deletes the documents of attempts that never committed a version. Attempts of a batch that has not ended are left
    alone. It takes no Spark, and is safe beside batches and consumers.

        consistent sweep --app samples.shooting_range:app --algorithm outbox \
            --cascade --out outcomes --store sqlite:///store.db --table games

    Publishes outputs of single messages and of abandoned batches that are still in outboxes, and whose message will not
    be redelivered. A batch that has not ended publishes its own outputs when it is run again with its id. This sweep is
    a batch too: its outcomes are duplicates with the outputs that were left. One request for each 1,000 entities, and
    three for each with something left.
    """
    age, screen = timedelta(microseconds=older_than), Screen(as_json)
    if given["algorithm"] != STATE_BASED:
        _sweep_outboxes(app, given["algorithm"], batch, age, screen)
        return
    documents = batch.given["documents"]
    if documents is None:
        raise UsageError(
            "State-based, no outputs are stored that could be swept: run the messages again, or the batch that died "
            "with its id. To delete documents that do not count, say with --documents where they are."
        )
    swept = on_table(*batch.states, partial(_sweep_documents, existing_documents(documents), age))
    screen.give({"attempts": swept.attempts, "documents": swept.documents})
    screen.show(
        f"Deleted {counted(swept.documents, 'document')} of {counted(swept.attempts, 'attempt')} that never committed."
        if swept.attempts
        else "Nothing was left behind."
    )


async def _sweep_documents(documents: DocumentStore, age: timedelta, table: Table) -> Swept:
    retries = RetryPolicy().beside(table)
    ledger = Ledger(table, system_clock, retries)
    open_batches = await until_undisturbed(retries, ledger.open_batches)
    return await DocumentSweep(table, documents, system_clock, retries, open_batches).sweep(age)


def _sweep_outboxes(app: str, algorithm: str, batch: SweepChoices, age: timedelta, screen: Screen) -> None:
    if not app or not batch.out:
        raise UsageError(f"To sweep a table of the algorithm {algorithm}, give --app and --out.")
    loaded = load_app(app)
    options = batch.options(algorithm=algorithm)
    check_table(*batch.states)
    check_out(batch.out, batch.spark.place)
    check_batch(loaded, batch.states, options, batch.batch_id, batch.out, must_exist=True)
    command = BatchCommand.announced(loaded, batch, options, screen)
    with command.carried_out("Looking for what is unfinished", lambda new, id_: new.sweep(age, id_)) as done:
        if done.report.counts:
            screen.put(done.report)
        else:
            screen.give(done.report.document())
            screen.show("Nothing was left unfinished.")
