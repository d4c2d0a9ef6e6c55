"""`consistent window`: back to when duplicates are recognised for certain."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import typer

from runtime.cleanup.window import Cut, Window, Windows, window_of, windows
from runtime.cli.console import Screen
from runtime.cli.failures import NotPossibleError
from runtime.cli.option_groups import ScanOptions
from runtime.cli.options import AsJson, Limit, StoreUrl, TableName
from runtime.cli.places import Place
from runtime.cli.reports.tables import Cell, counted, make_facts, make_table, moment_cell, moment_text
from runtime.cli.stores import on_table
from runtime.messages.message_ids import canonical

HandlerName = Annotated[
    str | None, typer.Argument(metavar="HANDLER", show_default=False, help="The name of a handler.")
]
BusinessId = Annotated[
    str | None,
    typer.Argument(metavar="BUSINESS_ID", show_default=False, help="The id of the business object."),
]


def window(
    handler: HandlerName = None,
    business_id: BusinessId = None,
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
        screen.give(_document(found))
        _show_all(screen, f"{handler or 'all streams'} of {table}", found)
        return
    one = on_table(store, table, lambda opened: window_of(opened, handler, business_id))
    if one is None and canonical(business_id) != business_id:
        one = on_table(store, table, lambda opened: window_of(opened, handler, canonical(business_id)))
    if one is None:
        raise NotPossibleError(
            f"There is no stream of {handler} for {business_id}: `consistent streams` lists them."
        )
    screen.give(_described(one))
    screen.show(make_facts(f"{one.handler} {one.business_id}", _facts(one)), "", one.sentence)


def _facts(found: Window) -> list[tuple[str, Cell]]:
    return [
        ("versions", found.versions),
        ("kept from", found.kept_from),
        ("oldest kept was written", moment_cell(found.oldest)),
        ("horizon", moment_cell(found.horizon)),
        ("undated versions cut", found.undated_cut),
    ]


def _described(found: Window) -> dict[str, Any]:
    return {
        **found._asdict(),
        "oldest": moment_text(found.oldest),
        "horizon": moment_text(found.horizon),
        "sentence": found.sentence,
    }


def _document(found: Windows) -> dict[str, Any]:
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
