"""`consistent stats` and `sql`: how much a table holds, and queries."""

from __future__ import annotations

import asyncio
import csv
import sys
from datetime import datetime
from decimal import Decimal
from math import isfinite
from typing import Annotated, Any

import typer
from rich.console import RenderableType

from eventstore import connect
from runtime.algorithms.choice import described_algorithm
from runtime.algorithms.outbox.stores import TokenStore
from runtime.batch_options import TablePlace
from runtime.cli.checks import load_app, require_table
from runtime.cli.commands.outcomes import OutcomeFiles
from runtime.cli.commands.outcomes import Wanted as Outcomes
from runtime.cli.console import Screen, compact_json, counted, iso, make_table, moment
from runtime.cli.failures import NotPossibleError
from runtime.cli.options import AsJson, OtherStores, ScanOptions, only
from runtime.clock import system_clock
from runtime.errors import UsageError
from runtime.ledger.ledger import Ledger
from runtime.maintenance.statistics import (
    HandlerCount,
    TableCount,
    count_objects,
    count_rows,
)
from runtime.options import option

_VIEWS = {
    "@window": """
        SELECT handler, count(*) AS objects, count(*) FILTER (kept_from > 1) AS cut,
            bool_or(undated_cut) AS undated_cut, max(horizon) AS recognised_after,
            quantile_disc(horizon, 0.99) AS in_99_percent, quantile_disc(horizon, 0.9) AS in_90_percent,
            quantile_disc(horizon, 0.5) AS in_half
        FROM state GROUP BY handler ORDER BY handler""",
}
"""Queries with a name."""


def sql(
    query: Annotated[
        str,
        typer.Argument(
            metavar="QUERY", show_default=False, help="The statement, in the SQL of DuckDB, or @window."
        ),
    ],
    *,
    states: TablePlace,
    handler: str | None = option("Read only the streams of this handler.", default=None, metavar="NAME"),
    business_id: str | None = option(
        "Read only streams with this business id.", default=None, name="--id", metavar="BUSINESS_ID"
    ),
    as_of: str | None = option(
        "Read states as of a time, as 2026-03-01T12:00:00Z.", default=None, metavar="TIME"
    ),
    batch_id: str | None = option("Read states as of the end of a batch.", default=None, metavar="ID"),
    app: str | None = option(
        "With --handler: states are structs with the fields of its model, in place of JSON.",
        default=None,
        metavar="MODULE:ATTRIBUTE",
    ),
    out: str | None = option(
        "The folder or url of outcomes, to read as the tables `outcomes` and `outputs` too.",
        default=None,
        metavar="DIR",
    ),
    allow_files: bool = option(
        "Let the query read and write files, and load extensions of DuckDB.", default=False
    ),
    as_json: AsJson = False,
    as_csv: bool = option("Print comma-separated values.", default=False, name="--csv"),
) -> None:
    r"""Ask a table in SQL: its tables are `state`, `versions`, `batches` and `letters`, with --out also `outcomes`.

        consistent sql "select handler, count(*) from versions group by 1" \
            --store sqlite:///store.db --table games

    It is one statement, and runs in this process on DuckDB. Tables and columns that it does not name are not read, nor
    streams that --handler and --id exclude; a condition of the query is tried on each row. States, and what reads them,
    are described in docs/tables.md.

        consistent sql @window --store sqlite:///store.db --table games

    For each handler: how many objects were cut, and the enqueued_at after which duplicates are recognised for certain:
    in all objects, and in 99, 90 and 50 % of those that were cut. `consistent show` says it of one object.
    """
    if query.startswith("@") and query not in _VIEWS:
        raise UsageError(f"There is no query {query}: there is {', '.join(_VIEWS)}.")
    query = _VIEWS.get(query, query)
    if as_json and as_csv:
        raise UsageError("Give --json or --csv, not both.")
    require_table(states)
    from runtime.tables import reader
    from runtime.tables.sql import TableDataset
    from runtime.tables.sql import query as run
    from runtime.tables.streams import Wanted

    wanted, shown_as = Wanted(handler, business_id), None if app is None else load_app(app)
    found = run(
        states.store,
        states.table,
        query,
        {
            reader.Kind.STATE: reader.Request(
                reader.Kind.STATE, wanted, reader.moment(as_of), batch_id, app=shown_as
            ),
            reader.Kind.VERSIONS: reader.Request(reader.Kind.VERSIONS, wanted, app=shown_as),
            reader.Kind.BATCHES: reader.Request(reader.Kind.BATCHES),
            reader.Kind.LETTERS: reader.Request(reader.Kind.LETTERS, wanted),
        },
        None if out is None else TableDataset(*OutcomeFiles.open(out, None, Outcomes()).table()),
        allow_files=allow_files,
    )
    if as_csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(found.columns)
        for row in found.rows:
            plain = ["" if each is None else each for each in map(_plain, row)]
            writer.writerow([each if isinstance(each, str) else compact_json(each) for each in plain])
        return
    cells = [
        [v if v is None or isinstance(v, str | int | datetime) else compact_json(_plain(v)) for v in row]
        for row in found.rows
    ]
    Screen(as_json).put(
        {"columns": found.columns, "rows": [list(map(_plain, row)) for row in found.rows]},
        make_table(counted(len(cells), "row"), found.columns, cells),
    )


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
        case Decimal() if value.as_tuple().exponent == 0:
            return int(value)  # a sum of integers
        case None | bool() | int() | float() | str():
            return value
    return str(value)


def stats(
    *,
    states: TablePlace,
    others: Annotated[OtherStores, only("token_store", "token_table")],
    quick: bool = option(
        "Read headers only, and leave out rows, bytes and the oldest version.", default=False
    ),
    scan: ScanOptions,
    as_json: AsJson = False,
) -> None:
    """Count what a table holds, by handler: objects, versions, letters, rows, bytes.

        consistent stats --store sqlite:///store.db --table games

    Unfinished are messages whose outputs may be unpublished: their batch has not ended, or their worker died (see
    `consistent sweep`). The horizon is the newest of all streams: `consistent sql @window` tells more. Bytes are
    counted as Azure Table Storage charges them. A live token is a message that was sent and not yet processed, or a
    dead letter.

    It reads the whole table: one request for each 1,000 rows or 4 MiB. With --quick it is two for each 1,000 objects.
    Live tokens take one for each 1,000. With --master or --remote the table is split by its keys, which costs two more
    for each 1,000 objects, and counted on all workers.
    """
    at = others.tokens(states)
    require_table(states)
    require_table(at)
    tokens = asyncio.run(_count_tokens(states, at))
    count = TableCount()
    scan.scan(states, count_objects if quick else count_rows, count.merge, step="Counting")
    columns = dict(_COLUMNS)
    if quick:
        for name in ("oldest", "rows", "bytes"):
            del columns[name]
    rows = [{name: _time(each, name) for name in columns} for each in count.handlers]
    document: dict[str, Any] = {"handlers": rows, "live_tokens": tokens}
    parts: list[RenderableType] = []
    if rows:
        parts.append(make_table(f"What {states.table} holds", columns, rows))
    parts.append(f"Live tokens: {tokens:,}")
    if not quick:
        others_found = {"rows": count.others.rows, "bytes": count.others.bytes}
        document["others"] = others_found
        parts.append(
            f"Beside these: {counted(count.others.rows, 'row')} of the ledger, tokens and whatever else, "
            f"{count.others.bytes:,} bytes"
        )
    if not rows and not tokens:
        parts = [f"The table {states.table} holds no business objects and no tokens."]
    Screen(as_json).put(document, *parts)


_COLUMNS = {
    "handler": "handler",
    "algorithm": "algorithm",
    "objects": "objects",
    "versions": "messages",
    "kept": "versions kept",
    "unfinished": "unfinished",
    "letters": "letters",
    "horizon": "horizon",
    "oldest": "oldest version",
    "rows": "rows",
    "bytes": "bytes",
}


def _time(count: HandlerCount, name: str) -> object:
    value = getattr(count, name)
    return moment(value) if name in ("horizon", "oldest") else value


async def _count_tokens(states: TablePlace, tokens: TablePlace) -> int:
    """Count the live tokens. Raises `NotPossibleError` when batches kept theirs elsewhere: none would be counted."""
    described = described_algorithm("tokens", None if tokens == states else (tokens.store, tokens.table))
    async with connect(states.store) as store, connect(tokens.store) as other:
        found = await Ledger(await store.table(states.table), system_clock).algorithm()
        algorithm, batch_id = found or ("", "")
        if algorithm.startswith("tokens") and algorithm != described:
            raise NotPossibleError(
                f"The algorithm of batch {batch_id} is {algorithm}: say with --token-store and --token-table where the "
                f"tokens are."
            )
        return await TokenStore(await other.table(tokens.table)).count()
