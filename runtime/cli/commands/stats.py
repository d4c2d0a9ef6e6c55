"""`consistent stats`, `window` and `sql`: how much a table holds, how far back duplicates are detected, and queries."""

from __future__ import annotations

import asyncio
import csv
import sys
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from functools import partial
from math import isfinite
from typing import Annotated, Any

import typer
from rich.console import RenderableType

from eventstore import Table, connect
from runtime.algorithms.choice import described_algorithm
from runtime.algorithms.outbox.stores import TokenStore
from runtime.batch_options import TablePlace
from runtime.cli.checks import load_app, on_table, require_table
from runtime.cli.commands.outcomes import OutcomeFiles
from runtime.cli.commands.outcomes import Wanted as Outcomes
from runtime.cli.console import Screen, compact_json, counted, iso, make_facts, make_table, moment
from runtime.cli.failures import NotPossibleError
from runtime.cli.options import AsJson, Limit, OtherStores, ScanOptions, only
from runtime.clock import system_clock
from runtime.errors import UsageError
from runtime.ledger.ledger import Ledger
from runtime.maintenance.statistics import (
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
from runtime.options import option
from runtime.versions.stream import stream_key


def sql(
    query: Annotated[
        str, typer.Argument(metavar="QUERY", show_default=False, help="The statement, in the SQL of DuckDB.")
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
    """
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
    `consistent sweep`). The horizon is the newest of all streams: `consistent window` tells more. Bytes are counted as
    Azure Table Storage charges them. A live token is a message that was sent and not yet processed, or a dead letter.

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
        if found is not None and found.name.startswith("tokens") and found.name != described:
            raise NotPossibleError(
                f"The algorithm of batch {found.batch_id} is {found.name}: say with --token-store and --token-table "
                f"where the tokens are."
            )
        return await TokenStore(await other.table(tokens.table)).count()


# `consistent window`: back to when duplicates are recognised for certain.


def window(
    handler: Annotated[
        str | None, typer.Argument(metavar="HANDLER", show_default=False, help="The name of a handler.")
    ] = None,
    business_id: Annotated[
        str | None,
        typer.Argument(metavar="BUSINESS_ID", show_default=False, help="The id of the business object."),
    ] = None,
    *,
    states: TablePlace,
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
        prefix = "" if handler is None else stream_key(handler)
        read = partial(windows, limit=limit)
        scan.scan(states, read, found.merge, step="Looking at the streams", prefix=prefix)
        _show_windows(screen, f"{handler or 'all streams'} of {states.table}", found)
        return

    async def read_one(table: Table) -> Window | None:
        for spelling in dict.fromkeys((business_id, canonical(business_id))):
            one = await window_of(table, handler, spelling)
            if one is not None:
                return one
        return None

    one = on_table(states, read_one)
    if one is None:
        raise NotPossibleError(
            f"There is no stream of {handler} for {business_id}: `consistent streams` lists them."
        )
    facts = [
        ("versions", one.versions),
        ("kept from", one.kept_from),
        ("oldest kept was written", moment(one.oldest)),
        ("horizon", moment(one.horizon)),
        ("undated versions cut", one.undated_cut),
    ]
    times = {"oldest": moment(one.oldest), "horizon": moment(one.horizon)}
    screen.put(
        {**one._asdict(), **times, "sentence": one.sentence},
        make_facts(f"{one.handler} {one.business_id}", facts),
        "",
        one.sentence,
    )


def _show_windows(screen: Screen, what: str, found: Windows) -> None:
    """Show how the horizons of streams are distributed, and which streams have the newest."""
    uncut = found.streams - found.cut
    quantiles = [
        {"share": share, "recognised_after": moment(horizon)} for share, horizon in found.quantiles()
    ]
    worst = [{**each._asdict(), "horizon": moment(each.horizon or None)} for each in found.worst]

    def parts() -> Iterator[RenderableType]:
        if not found.streams:
            yield "There are no such streams."
            return
        yield f"Of {counted(found.streams, 'stream')}, {uncut:,} {'was' if uncut == 1 else 'were'} never cut."
        yield found.sentence
        if not found.cut:
            return
        yield ""
        shares = [each | {"share": f"{each['share']:.0%}"} for each in quantiles]
        columns = {"share": "of the streams cut", "recognised_after": "recognised after"}
        yield make_table(f"Since when duplicates are recognised: {what}", columns, shares)
        yield ""
        names = ("handler", "business_id", "horizon", "kept_from", "undated_cut")
        yield make_table("Those of which least is recognised", names, worst)

    screen.put(
        {
            "streams": found.streams,
            "never_cut": uncut,
            "undated_cut": found.undated_cut,
            "horizon": moment(found.horizon),
            "quantiles": quantiles,
            "worst": worst,
            "sentence": found.sentence,
        },
        *parts(),
    )
