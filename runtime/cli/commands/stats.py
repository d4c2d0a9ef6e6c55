"""`consistent stats`: how much a table holds."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import typer

from eventstore import Table, connect
from runtime.algorithms.choice import described_algorithm
from runtime.algorithms.counts import HandlerCount, TableCount, count_objects, count_rows
from runtime.algorithms.outbox.tokens import TokenStore
from runtime.batches.ledger import Ledger
from runtime.cli.console import Screen
from runtime.cli.failures import NotPossibleError
from runtime.cli.option_groups import ScanOptions
from runtime.cli.options import AsJson, StoreUrl, TableName, TokenStoreUrl, TokenTableName
from runtime.cli.places import Named, Place
from runtime.cli.reports.tables import Cell, counted, make_table, moment_cell, moment_text
from runtime.cli.stores import check_table
from runtime.clock import system_clock

_COLUMNS = (
    "handler",
    "algorithm",
    "objects",
    "messages",
    "versions kept",
    "unfinished",
    "letters",
    "horizon",
)
_COLUMNS_OF_ROWS = ("oldest version", "rows", "bytes")

Quick = Annotated[
    bool,
    typer.Option("--quick", help="Read headers only, and leave out rows, bytes and the oldest version."),
]


def stats(
    *,
    store: StoreUrl,
    table: TableName,
    token_store: TokenStoreUrl = None,
    token_table: TokenTableName = None,
    quick: Quick = False,
    scan: ScanOptions,
    as_json: AsJson = False,
) -> None:
    """Count what a table holds, by handler: objects, versions, letters, rows, bytes.

        consistent stats --store sqlite:///store.db --table games

    Unfinished are messages whose outputs may be unpublished: their batch has not ended, or their worker died (see
    `consistent sweep`). The horizon is the newest of all streams: `consistent window` tells more. Bytes are counted as
    Azure Table Storage charges them. A live token is a message that was sent and not yet processed, or a dead letter.

    It reads the whole table: one request for each 1,000 rows or 4 MiB. With --quick it is two for each 1,000 objects.
    Live tokens take one for each 1,000. With --master or --remote the table is split by its keys, which costs two more
    for each 1,000 objects, and counted on all workers.
    """
    states = Place(store, table)
    tokens_at = Named(token_store, token_table).beside(states)
    check_table(*states)
    check_table(*tokens_at)
    tokens = asyncio.run(_count_tokens(states, tokens_at))
    count = TableCount()
    scan.scan(states, count_objects if quick else count_rows, count.merge, step="Counting")
    screen = Screen(as_json)
    screen.give(_document(count, tokens, quick=quick))
    if not count.handlers and not tokens:
        screen.show(f"The table {table} holds no business objects and no tokens.")
        return
    if count.handlers:
        columns = _COLUMNS if quick else (*_COLUMNS, *_COLUMNS_OF_ROWS)
        rows = [_row(each, quick=quick) for each in count.handlers]
        screen.show(make_table(f"What {table} holds", columns, rows))
    screen.show(f"Live tokens: {tokens:,}")
    if not quick:
        screen.show(
            f"Beside these: {counted(count.others.rows, 'row')} of the ledger, tokens and whatever else, "
            f"{count.others.bytes:,} bytes"
        )


async def _count_tokens(states: Place, tokens: Place) -> int:
    async with connect(states.store) as store, connect(tokens.store) as other:
        table = await store.table(states.table)
        await _check_tokens(table, described_algorithm("tokens", None if tokens == states else tokens))
        return await TokenStore(await other.table(tokens.table)).count()


async def _check_tokens(table: Table, described: str) -> None:
    """Raise `NotPossibleError` when batches kept their tokens elsewhere: none would be counted."""
    found = await Ledger(table, system_clock).algorithm()
    if found is not None and found.name.startswith("tokens") and found.name != described:
        raise NotPossibleError(
            f"The algorithm of batch {found.batch_id} is {found.name}: say with --token-store and --token-table "
            f"where the tokens are."
        )


def _document(count: TableCount, tokens: int, *, quick: bool) -> dict[str, Any]:
    document: dict[str, Any] = {
        "handlers": [_described(each, quick=quick) for each in count.handlers],
        "live_tokens": tokens,
    }
    if not quick:
        document["others"] = {"rows": count.others.rows, "bytes": count.others.bytes}
    return document


def _described(count: HandlerCount, *, quick: bool) -> dict[str, Any]:
    described = count._asdict()
    oldest, rows, size = (described.pop(name) for name in ("oldest", "rows", "bytes"))
    described["horizon"] = moment_text(count.horizon)
    return described if quick else {**described, "oldest": moment_text(oldest), "rows": rows, "bytes": size}


def _row(count: HandlerCount, *, quick: bool) -> tuple[Cell, ...]:
    of_objects: tuple[Cell, ...] = (*count[:7], moment_cell(count.horizon))
    return of_objects if quick else (*of_objects, moment_cell(count.oldest), count.rows, count.bytes)
