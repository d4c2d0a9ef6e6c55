"""`consistent stats`, `window` and `sql`: how much a table holds, how far back duplicates are detected, and queries."""

from __future__ import annotations

import asyncio
import csv
import json
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import partial
from math import isfinite
from typing import Annotated, Any

import typer

from eventstore import Table, connect
from runtime.algorithms.choice import described_algorithm
from runtime.algorithms.outbox.stores import TokenStore
from runtime.cli.checks import Named, Place, load_app, on_table, require_table
from runtime.cli.console import (
    Cell,
    Screen,
    compact_json,
    counted,
    iso,
    make_facts,
    make_table,
    moment_cell,
    moment_text,
)
from runtime.cli.failures import NotPossibleError
from runtime.cli.options import AsJson, Limit, ScanOptions, StoreUrl, TableName, TokenStoreUrl, TokenTableName
from runtime.clock import system_clock
from runtime.errors import UsageError
from runtime.ledger.ledger import Ledger
from runtime.maintenance.statistics import (
    Cut,
    HandlerCount,
    TableCount,
    Window,
    Windows,
    count_objects,
    count_rows,
    window_of,
    windows,
)
from runtime.messages.envelope import canonical

# `consistent sql`: questions to a table in SQL.

Statement = Annotated[
    str, typer.Argument(metavar="QUERY", show_default=False, help="The statement, in the SQL of DuckDB.")
]
HandlerName = Annotated[
    str | None, typer.Option("--handler", metavar="NAME", help="Read only the streams of this handler.")
]
BusinessId = Annotated[
    str | None, typer.Option("--id", metavar="BUSINESS_ID", help="Read only streams with this business id.")
]
AsOf = Annotated[
    str | None,
    typer.Option("--as-of", metavar="TIME", help="Read states as of a time, as 2026-03-01T12:00:00Z."),
]
BatchId = Annotated[
    str | None, typer.Option("--batch-id", metavar="ID", help="Read states as of the end of a batch.")
]
AppOfStates = Annotated[
    str | None,
    typer.Option(
        "--app",
        metavar="MODULE:ATTRIBUTE",
        help="With --handler: states are structs with the fields of its model, in place of JSON.",
    ),
]
AsCsv = Annotated[bool, typer.Option("--csv", help="Print comma-separated values.")]


def sql(
    query: Statement,
    *,
    store: StoreUrl,
    table: TableName,
    handler: HandlerName = None,
    business_id: BusinessId = None,
    as_of: AsOf = None,
    batch_id: BatchId = None,
    app: AppOfStates = None,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    r"""Ask a table in SQL: its tables are `state`, `versions`, `batches` and `letters`.

        consistent sql "select handler, count(*) from versions group by 1" \
            --store sqlite:///store.db --table games

    It runs in this process on DuckDB. Tables and columns that the query does not name are not read, nor streams
    that --handler and --id exclude; a condition of the query is tried on each row.
    States, and what reads them, are described in docs/tables.md.
    """
    if as_json and as_csv:
        raise UsageError("Give --json or --csv, not both.")
    require_table(store, table)
    from runtime.tables.reader import Kind, Request, moment
    from runtime.tables.sql import query as run
    from runtime.tables.streams import Wanted

    wanted, shown_as = Wanted(handler, business_id), None if app is None else load_app(app)
    found = run(
        store,
        table,
        query,
        {
            Kind.STATE: Request(Kind.STATE, wanted, moment(as_of), batch_id, app=shown_as),
            Kind.VERSIONS: Request(Kind.VERSIONS, wanted, app=shown_as),
            Kind.BATCHES: Request(Kind.BATCHES),
            Kind.LETTERS: Request(Kind.LETTERS, wanted),
        },
    )
    if as_csv:
        _print_csv(*found)
        return
    screen = Screen(as_json)
    screen.give({"columns": found.columns, "rows": [list(map(_plain, row)) for row in found.rows]})
    rows = [list(map(_cell, row)) for row in found.rows]
    screen.show(make_table(counted(len(rows), "row"), found.columns, rows))


def _print_csv(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(names)
    writer.writerows(map(_text, row) for row in rows)


def _plain(value: Any) -> Any:  # noqa: ANN401 - a value of a column, and of JSON
    match value:
        case datetime():
            return iso(value)
        case bytes():
            return value.hex()
        case dict():
            return {str(name): _plain(item) for name, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
        case float() if not isfinite(value):
            return None  # JSON has no such number
        case None | bool() | int() | float() | str():
            return value
    return str(value)


def _text(value: Any) -> str:  # noqa: ANN401 - a value of a column
    plain = _plain(value)
    if plain is None:
        return ""
    return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)


def _cell(value: Any) -> Cell:  # noqa: ANN401 - a value of a column
    if value is None or isinstance(value, str | int | datetime):
        return value
    return compact_json(_plain(value))


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
    require_table(*states)
    require_table(*tokens_at)
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


# `consistent window`: back to when duplicates are recognised for certain.

WindowHandler = Annotated[
    str | None, typer.Argument(metavar="HANDLER", show_default=False, help="The name of a handler.")
]
WindowBusinessId = Annotated[
    str | None,
    typer.Argument(metavar="BUSINESS_ID", show_default=False, help="The id of the business object."),
]


def window(
    handler: WindowHandler = None,
    business_id: WindowBusinessId = None,
    *,
    store: StoreUrl,
    table: TableName,
    limit: Limit = 10,
    scan: ScanOptions,
    as_json: AsJson = False,
) -> None:
    r"""Tell back to when duplicates are recognised for certain: of a stream, a handler or a table.

        consistent window --store sqlite:///store.db --table games \
            ShootingRange 7f0c...e2

    A message that was enqueued after the horizon of its stream either has its version, so that each copy is recognised,
    or is new. An unknown one from the horizon or before cannot be told from a duplicate, and is too_late. Without a
    business id it tells how the horizons are distributed, rounded up to the hour, and which streams have the newest.

    One request for a stream, else one for each 1,000 streams; no history is read. With --master or --remote the streams
    are split by their keys, which costs two more for each 1,000, and looked at by all workers.
    """
    screen = Screen(as_json)
    if handler is None or business_id is None:
        found = Windows(limit)
        scan.scan(
            Place(store, table),
            partial(windows, limit=limit),
            found.merge,
            step="Looking at the streams",
            prefix=f"{handler}-" if handler else "",
        )
        screen.give(_window_document(found))
        _show_all(screen, f"{handler or 'all streams'} of {table}", found)
        return
    one = on_table(store, table, lambda opened: window_of(opened, handler, business_id))
    if one is None and canonical(business_id) != business_id:
        one = on_table(store, table, lambda opened: window_of(opened, handler, canonical(business_id)))
    if one is None:
        raise NotPossibleError(
            f"There is no stream of {handler} for {business_id}: `consistent streams` lists them."
        )
    screen.give(_window_described(one))
    screen.show(make_facts(f"{one.handler} {one.business_id}", _facts(one)), "", one.sentence)


def _facts(found: Window) -> list[tuple[str, Cell]]:
    return [
        ("versions", found.versions),
        ("kept from", found.kept_from),
        ("oldest kept was written", moment_cell(found.oldest)),
        ("horizon", moment_cell(found.horizon)),
        ("undated versions cut", found.undated_cut),
    ]


def _window_described(found: Window) -> dict[str, Any]:
    return {
        **found._asdict(),
        "oldest": moment_text(found.oldest),
        "horizon": moment_text(found.horizon),
        "sentence": found.sentence,
    }


def _window_document(found: Windows) -> dict[str, Any]:
    return {
        "streams": found.streams,
        "never_cut": found.streams - found.cut,
        "undated_cut": found.undated_cut,
        "horizon": moment_text(found.horizon),
        "quantiles": [
            {"share": share, "recognised_after": moment_text(horizon)} for share, horizon in found.quantiles()
        ],
        "worst": [_described_cut(each) for each in found.worst],
        "sentence": found.sentence,
    }


def _described_cut(cut: Cut) -> dict[str, Any]:
    return {**cut._asdict(), "horizon": moment_text(cut.horizon or None)}


def _show_all(screen: Screen, what: str, found: Windows) -> None:
    if not found.streams:
        screen.show("There are no such streams.")
        return
    uncut = found.streams - found.cut
    screen.show(
        f"Of {counted(found.streams, 'stream')}, {uncut:,} {'was' if uncut == 1 else 'were'} never cut.",
        found.sentence,
    )
    if not found.cut:
        return
    rows = [(f"{share:.0%}", moment_cell(horizon)) for share, horizon in found.quantiles()]
    title = f"Since when duplicates are recognised: {what}"
    screen.show("", make_table(title, ("of the streams cut", "recognised after"), rows))
    worst = [
        (each.handler, each.business_id, moment_cell(each.horizon or None), each.kept_from, each.undated_cut)
        for each in found.worst
    ]
    columns = ("handler", "business id", "horizon", "kept from", "undated cut")
    screen.show("", make_table("Those of which least is recognised", columns, worst))
