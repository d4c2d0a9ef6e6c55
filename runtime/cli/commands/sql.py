"""`consistent sql`: queries."""

from __future__ import annotations

import csv
import re
import sys
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from math import isfinite
from typing import TYPE_CHECKING, Annotated, Any

import typer

from runtime.batch_options import TablePlace
from runtime.cli.checks import load_app, require_table
from runtime.cli.commands.outcomes import OutcomeFiles
from runtime.cli.commands.outcomes import OutcomeFilter as Outcomes
from runtime.cli.commands.show import count_table
from runtime.cli.console import Screen, compact_json, counted, iso, make_table
from runtime.cli.options import AsJson, ScanOptions
from runtime.errors import UsageError
from runtime.maintenance.statistics import HandlerCount
from runtime.options import option

if TYPE_CHECKING:
    import pyarrow as pa

    from runtime.tables.reader import Request, TableKind

_VIEWS = {
    "@window": """
        SELECT handler, count(*) AS objects, count(*) FILTER (kept_from > 1) AS cut,
            bool_or(undated_cut) AS undated_cut, max(horizon) AS recognised_after,
            quantile_disc(horizon, 0.99) AS in_99_percent, quantile_disc(horizon, 0.9) AS in_90_percent,
            quantile_disc(horizon, 0.5) AS in_half
        FROM state GROUP BY handler ORDER BY handler""",
    "@stats": "FROM stats ORDER BY handler NULLS LAST",
}
"""Queries with a name."""


@dataclass(frozen=True)
class RowFilter:
    """What is read of the tables."""

    handler: str | None = option("Read only the streams of this handler.", default=None, metavar="NAME")
    business_id: str | None = option(
        "Read only streams with this business id.", default=None, name="--id", metavar="BUSINESS_ID"
    )
    as_of: str | None = option(
        "Read states as of a time, as 2026-03-01T12:00:00Z.", default=None, metavar="TIME"
    )
    batch_id: str | None = option("Read states as of the end of a batch.", default=None, metavar="ID")
    app: str | None = option(
        "With --handler: states are structs with the fields of its model, in place of JSON.",
        default=None,
        metavar="MODULE:ATTRIBUTE",
    )

    def requests(self) -> dict[TableKind, Request]:
        """Return what is asked of each table."""
        from runtime.tables.reader import Request, TableKind, moment
        from runtime.tables.streams import StreamQuery

        stream_query = StreamQuery(self.handler, self.business_id)
        app = None if self.app is None else load_app(self.app)
        return {
            TableKind.STATE: Request(
                TableKind.STATE, stream_query, moment(self.as_of), self.batch_id, app=app
            ),
            TableKind.VERSIONS: Request(TableKind.VERSIONS, stream_query, app=app),
            TableKind.BATCHES: Request(TableKind.BATCHES),
            TableKind.LETTERS: Request(TableKind.LETTERS, stream_query),
        }


def sql(
    query: Annotated[
        str,
        typer.Argument(
            metavar="QUERY",
            show_default=False,
            help="The statement, in the SQL of DuckDB, or @window or @stats.",
        ),
    ],
    *,
    states: TablePlace,
    row_filter: RowFilter,
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
    r"""Ask a table in SQL: it is `state`, `versions`, `batches`, `letters` and `stats`, with --out also `outcomes`.

        consistent sql "select handler, count(*) from versions group by 1" \
            --store sqlite:///store.db --table games

    It is one statement, and runs in this process on DuckDB. Tables and columns that it does not name are not read, nor
    streams that --handler and --id exclude; a condition of the query is tried on each row. States, and what reads them,
    are described in docs/tables.md.

        consistent sql @window --store sqlite:///store.db --table games

    For each handler: how many objects were cut, and the enqueued_at after which duplicates are recognised for certain:
    in all objects, and in 99, 90 and 50 % of those that were cut. `consistent show` says it of one object.

        consistent sql @stats --store sqlite:///store.db --table games --csv

    What `consistent show --stats` counts; in the last row, without handler, what belongs to no object. A statement that
    names the table `stats` reads all rows of the table, and --handler and --id do not narrow it.
    """
    if query.startswith("@") and query not in _VIEWS:
        raise UsageError(f"There is no query {query}: there is {', '.join(_VIEWS)}.")
    query = _VIEWS.get(query, query)
    if as_json and as_csv:
        raise UsageError("Give --json or --csv, not both.")
    require_table(states)
    from runtime.tables.sql import TableDataset
    from runtime.tables.sql import query as run

    more = {}
    if out is not None:
        more["outcomes"] = TableDataset(*OutcomeFiles.open(out, None, Outcomes()).table())
    if re.search(r"\bstats\b", query, re.IGNORECASE):
        stats = _stats(states)
        more["stats"] = TableDataset(stats.schema, lambda names: stats.select(names).to_batches())
    found = run(states.store, states.table, query, row_filter.requests(), more, allow_files=allow_files)
    if as_csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerows([found.columns, *(map(_csv, row) for row in found.rows)])
        return
    cells = [
        [v if v is None or isinstance(v, str | int | datetime) else compact_json(_plain(v)) for v in row]
        for row in found.rows
    ]
    Screen(as_json).put(
        {"columns": found.columns, "rows": [list(map(_plain, row)) for row in found.rows]},
        make_table(counted(len(cells), "row"), found.columns, cells),
    )


def _csv(value: Any) -> str:  # noqa: ANN401 - a value of a column
    plain = _plain(value)
    return "" if plain is None else plain if isinstance(plain, str) else compact_json(plain)


def _stats(states: TablePlace) -> pa.Table:
    """Count what a table holds, and return it as a table."""
    import pyarrow as pa

    count = count_table(states, ScanOptions())
    rows = [each._asdict() for each in count.handlers]
    rows.append({"rows": count.others.rows, "bytes": count.others.bytes})
    times = ("horizon", "oldest")
    kinds = {
        name: pa.timestamp("us", "UTC") if name in times else pa.int64() for name in HandlerCount._fields
    }
    return pa.Table.from_pylist(rows, pa.schema({**kinds, "handler": pa.string(), "algorithm": pa.string()}))


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
