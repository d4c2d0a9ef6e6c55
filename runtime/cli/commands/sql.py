"""`consistent sql`: query a table with SQL."""

from __future__ import annotations

import csv
import re
import sys
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from math import isfinite
from typing import TYPE_CHECKING, Annotated, Any

from runtime.batch_options import TablePlace
from runtime.cli.checks import load_app, require_table
from runtime.cli.commands.outcomes import open_outcomes
from runtime.cli.commands.show import count_table
from runtime.cli.console import Screen, compact_json, counted, iso, make_table, visible
from runtime.cli.options import AsJson, ScanOptions, argument
from runtime.errors import UsageError
from runtime.maintenance.statistics import HandlerCount
from runtime.options import flag, option
from runtime.outcome_files import OutcomeFilter

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


@dataclass(frozen=True)
class RowFilter:
    """Options that select the rows of tables."""

    handler: str | None = option("Read only the streams of this handler.", metavar="NAME")
    business_id: str | None = option("Read only the streams of this id.", name="--id", metavar="BUSINESS_ID")
    as_of: str | None = option("Read states as of a time such as 2026-03-01T12:00:00Z.", metavar="TIME")
    batch_id: str | None = option("Read states as of the end of a batch.", metavar="ID")
    app: str | None = option(
        "With --handler: return states as structs with the fields of its model, instead of JSON.",
        metavar="MODULE:ATTRIBUTE",
    )

    def requests(self) -> dict[TableKind, Request]:
        """Return a `Request` for each kind of table: for batches in full, for the others restricted by the options."""
        from runtime.tables.reader import Request, TableKind, moment
        from runtime.tables.streams import StreamQuery

        stream_query = StreamQuery(self.handler, self.business_id)
        app = None if self.app is None else load_app(self.app)
        requests = [
            Request(TableKind.STATE, stream_query, moment(self.as_of), self.batch_id, app=app),
            Request(TableKind.VERSIONS, stream_query, app=app),
            Request(TableKind.BATCHES),
            Request(TableKind.LETTERS, stream_query),
        ]
        return {each.kind: each for each in requests}


def sql(
    query: Annotated[
        str, argument("QUERY", "A DuckDB statement, @window or @stats, or - for standard input.")
    ],
    *,
    states: TablePlace,
    row_filter: RowFilter,
    out: str | None = option("The folder or URL for the tables `outcomes` and `outputs`.", metavar="DIR"),
    allow_files: bool = flag("Allow the query to access files and to load extensions of DuckDB."),
    as_json: AsJson = False,
    as_csv: bool = flag("Print comma-separated values.", name="--csv"),
) -> None:
    r"""Query a table with SQL: `state`, `versions`, `batches`, `letters` and `stats`, and with --out `outcomes`.

        consistent sql "select handler, count(*) from versions group by 1" \
            --store sqlite:///store.db --table games

    Runs one statement with DuckDB in this process. Reads only the tables and columns in the statement, and only the
    streams selected by --handler and --id. A WHERE clause does not reduce the rows read. docs/tables.md describes the
    tables.

        consistent sql @window --store sqlite:///store.db --table games

    Shows for each handler the number of truncated objects, and the enqueued_at after which all duplicates are
    recognised: in all objects, and in 99, 90 and 50 % of the truncated ones. `consistent show` shows this time for one
    object.

        consistent sql @stats --store sqlite:///store.db --table games --csv

    Shows the counts of `consistent show --stats`; the last row, without handler, counts rows that belong to no object.
    A statement with the table `stats` reads all rows, whatever --handler and --id say.
    """
    query = sys.stdin.read() if query == "-" else query
    if query.startswith("@") and query not in _VIEWS:
        raise UsageError(f"There is no query {query}: use one of {', '.join(_VIEWS)}.")
    query = _VIEWS.get(query, query)
    if as_json and as_csv:
        raise UsageError("--json and --csv exclude each other: use one of them.")
    states = require_table(states)
    from runtime.tables.sql import TableDataset
    from runtime.tables.sql import query as run

    more = {}
    if out is not None:
        more["outcomes"] = TableDataset(*open_outcomes(out, None, OutcomeFilter()).table())
    if re.search(r"\bstats\b", query, re.IGNORECASE):
        stats = _stats(states)
        more["stats"] = TableDataset(stats.schema, lambda names: stats.select(names).to_batches())
    found = run(states.store, states.table, query, row_filter.requests(), more, allow_files=allow_files)
    plain = [list(map(_plain, row)) for row in found.rows]
    if as_csv:
        shown = visible if sys.stdout.isatty() else str  # files and pipes keep the text
        rows = [found.columns, *plain]
        texts = (
            [v if v is None else shown(v if isinstance(v, str) else compact_json(v)) for v in row]
            for row in rows
        )
        csv.writer(sys.stdout, lineterminator="\n").writerows(texts)
        return
    cells = [
        [v if v is None or isinstance(v, str | int | datetime) else compact_json(_plain(v)) for v in row]
        for row in found.rows
    ]
    table = make_table(counted(len(cells), "row"), found.columns, cells)
    Screen(as_json).put({"columns": found.columns, "rows": plain}, table)


def _stats(states: TablePlace) -> pa.Table:
    import pyarrow as pa

    count = count_table(states, ScanOptions())
    rows = [each._asdict() for each in count.handlers]
    rows.append({"rows": count.others.rows, "bytes": count.others.bytes})
    kinds = dict.fromkeys(HandlerCount._fields, pa.int64())
    kinds |= dict.fromkeys(("horizon", "oldest"), pa.timestamp("us", "UTC"))
    kinds |= dict.fromkeys(("handler", "algorithm"), pa.string())
    return pa.Table.from_pylist(rows, pa.schema(kinds))


def _plain(value: Any) -> Any:  # noqa: ANN401 - any value of a column, and of JSON
    """Convert a value of a result to JSON."""
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
