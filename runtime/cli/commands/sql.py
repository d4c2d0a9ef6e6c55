"""`consistent sql`: questions to a table in SQL."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from math import isfinite
from typing import Annotated, Any

import typer

from runtime.cli.apps import load_app
from runtime.cli.console import Screen
from runtime.cli.options import AsJson, StoreUrl, TableName
from runtime.cli.reports.tables import Cell, compact_json, counted, iso, make_table
from runtime.cli.stores import check_table
from runtime.errors import UsageError

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

    It runs in this process on DuckDB. What is not asked for is not read: tables that the query does not name, columns
    that it leaves out, and streams that a condition on handler, business_id or now excludes.
    States, and what reads them, are described in docs/tables.md.
    """
    if as_json and as_csv:
        raise UsageError("Give --json or --csv, not both.")
    check_table(store, table)
    from runtime.tables.requests import Kind, Request, moment
    from runtime.tables.sql import query as run
    from runtime.tables.wanted import Wanted

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
