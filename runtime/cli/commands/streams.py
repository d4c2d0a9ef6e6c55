"""`consistent streams`: which state streams a table has."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any

import typer

from runtime.cli.console import Screen
from runtime.cli.options import AsJson, Limit, StoreUrl, TableName
from runtime.cli.reports.tables import Cell, make_table, moment_cell, moment_text
from runtime.cli.stores import on_table
from runtime.storage.listing import StreamSummary, summaries

Handler = Annotated[
    str | None, typer.Option("--handler", metavar="NAME", help="Only streams of this handler.")
]
Prefix = Annotated[
    str, typer.Option("--prefix", metavar="TEXT", show_default=False, help="Only business ids that begin so.")
]

_COLUMNS = ("handler", "business id", "versions", "kept from", "runs", "newest", "horizon")


def streams(
    *,
    store: StoreUrl,
    table: TableName,
    handler: Handler = None,
    prefix: Prefix = "",
    limit: Limit = 50,
    as_json: AsJson = False,
) -> None:
    r"""List the state streams of a table, one for each handler and business object.

        consistent streams --store sqlite:///store.db --table games \
            --handler LeaderBoard --prefix 7f

    It reads the header row of each stream, 1,000 with one request, and no history. With --handler and --prefix
    together only the streams that match are read; with --prefix alone all headers are.
    """
    found = on_table(store, table, lambda opened: _first(summaries(opened, handler, prefix), limit))
    listed, is_more = (found[:limit], len(found) > limit) if limit else (found, False)
    screen = Screen(as_json)
    screen.give({"streams": list(map(describe, listed)), "more": is_more})
    if not listed:
        screen.show("There are no such streams.")
        return
    screen.show(make_table(f"Streams of {table}", _COLUMNS, map(_row, listed)))
    if is_more:
        screen.show(f"There are more than these {limit}: see --limit, --handler and --prefix.")


def describe(summary: StreamSummary) -> dict[str, Any]:
    """Return what a stream's header says, for JSON."""
    head = summary.head
    return {
        "handler": summary.handler,
        "business_id": summary.business_id,
        "versions": head.versions,
        "kept_from": head.kept_from,
        "runs": summary.runs,
        "newest": moment_text(head.last_now),
        "horizon": moment_text(head.horizon),
    }


async def _first(found: AsyncIterator[StreamSummary], limit: int) -> list[StreamSummary]:
    """Return the first streams, and one more when there is one."""
    collected = []
    async for summary in found:
        collected.append(summary)
        if limit and len(collected) > limit:
            break
    return collected


def _row(summary: StreamSummary) -> tuple[Cell, ...]:
    head = summary.head
    return (
        summary.handler,
        summary.business_id,
        head.versions,
        head.kept_from,
        summary.runs,
        moment_cell(head.last_now),
        moment_cell(head.horizon),
    )
