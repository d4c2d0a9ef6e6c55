"""`consistent batches`: what the ledger of a table says."""

from __future__ import annotations

from shlex import quote
from typing import Annotated

import typer

from eventstore import Table
from runtime.batches.ledger import Ledger
from runtime.batches.record import STATE_BASED, BatchRecord
from runtime.cli.console import Screen
from runtime.cli.durations import parse_duration
from runtime.cli.invocation import command_with
from runtime.cli.options import AsJson, StoreUrl, TableName
from runtime.cli.reports.batch_record import counts_text, describe
from runtime.cli.reports.tables import Cell, counted, make_table
from runtime.cli.stores import on_table
from runtime.clock import system_clock
from runtime.errors import UsageError
from runtime.publishing.erasing import prune_publications
from runtime.urls import within

Abandon = Annotated[
    str | None,
    typer.Option(
        "--abandon",
        metavar="ID",
        help="Give up a batch that has not ended: what it stored stays, what it did not publish it never will.",
    ),
]

Prune = Annotated[
    bool, typer.Option("--prune", help="Delete the rows of batches that ended longer ago than --older-than.")
]
Age = Annotated[
    int | None,
    typer.Option("--older-than", parser=parse_duration, metavar="AGE", help="With --prune: 30d, 24h, 2w ..."),
]
Limit = Annotated[
    int, typer.Option("--limit", metavar="N", min=1, help="How many batches to list, the newest first.")
]

_COLUMNS = ("batch", "status", "rounds", "started", "updated", "outcomes", "out")


def batches(
    *,
    store: StoreUrl,
    table: TableName,
    limit: Limit = 50,
    abandon: Abandon = None,
    prune: Prune = False,
    older_than: Age = None,
    as_json: AsJson = False,
) -> None:
    """List the newest batches of a table: those that have not ended first, then the published and abandoned ones.

        consistent batches --store sqlite:///store.db --table games

    A batch that died stands as started. Run it again with its id and it goes on where it was; until then its
    versions are not cut, and a message of it that cannot be replayed fails any other batch. One request for
    each batch that is listed.

    With --prune, the ledger forgets batches that ended long ago, never one that has not ended. Their versions and
    outcomes stay; what is kept of their publications goes with them, dead letters too. A forgotten id that is used
    again is a new batch, for which it needs another folder of outcomes.
    """
    screen = Screen(as_json)
    if prune != (older_than is not None):
        message = (
            "--prune and --older-than AGE go together: the one says what to do, the other with which batches."
        )
        raise UsageError(message)
    if older_than is not None:
        before = system_clock() - older_than
        pruned = on_table(store, table, lambda opened: _prune(opened, before))
        screen.give(pruned)
        screen.show(f"The ledger of {table} has forgotten {counted(pruned['pruned'], 'batch')}.")
        return
    if abandon is not None:
        record = on_table(store, table, lambda opened: _abandon(opened, abandon))
        screen.give(describe(record))
        screen.show(f"Batch {abandon} is abandoned. {_what_is_left(record)}")
        return
    records = on_table(store, table, lambda opened: _batches(opened, limit))
    screen.give({"batches": list(map(describe, records))})
    if not records:
        screen.show(f"No batch was run into the table {table}.")
        return
    screen.show(make_table(f"Batches of {table}", _COLUMNS, map(_row, records)))
    if len(records) == limit:
        screen.show(f"There may be more: these are the newest {limit:,}, --limit lists others.")
    for record in records:
        if not record.is_finished:
            screen.show(_how_to_go_on(record))


async def _batches(table: Table, limit: int) -> list[BatchRecord]:
    return await Ledger(table, system_clock).batches(limit)


async def _prune(table: Table, before: int) -> dict[str, int]:
    pruned = await Ledger(table, system_clock).prune(before)
    return {"pruned": pruned, "publications": await prune_publications(table, system_clock)}


async def _abandon(table: Table, batch_id: str) -> BatchRecord:
    return await Ledger(table, system_clock).abandon(batch_id)


def _row(record: BatchRecord) -> tuple[Cell, ...]:
    return (
        record.batch_id,
        record.status.value,
        record.rounds,
        record.started_at,
        record.updated_at,
        counts_text(record) or None,
        record.out,
    )


def _what_is_left(record: BatchRecord) -> str:
    if record.algorithm == STATE_BASED:
        return "Its messages can be run under another id."
    left = "`consistent sweep` publishes what waits in outboxes, and so does another batch with its messages."
    if record.rounds == 0:
        return left
    folder = within(record.out, f"batch_id={record.batch_id}")
    return (
        f"The outcomes of {_rounds(record)} are in {folder}: publish them from there, as no other batch gives them "
        f"again. {left}"
    )


def _rounds(record: BatchRecord) -> str:
    return "its committed round" if record.rounds == 1 else f"its {record.rounds:,} committed rounds"


def _how_to_go_on(record: BatchRecord) -> str:
    again = f"run its log again with --batch-id {record.batch_id} --out {quote(record.out)}"
    if record.is_epoch:
        again = "start its query again"
    return (
        f"Batch {record.batch_id} has not ended. If nobody is running it, {again} to go on, or give it up:\n"
        f"  {command_with('--abandon', record.batch_id)}"
    )
