"""`consistent forget`: erase business objects."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from eventstore import Table, connect
from runtime.algorithms.choice import described_algorithm
from runtime.cli.checks import Place, require_table
from runtime.cli.console import Cell, Screen, counted, make_table, moment_cell, moment_text
from runtime.cli.failures import NotPossibleError, exports_need
from runtime.cli.options import AsJson, OtherStores, StoreUrl, TableName
from runtime.clock import system_clock
from runtime.documents.store import ListedDocuments, existing_documents, object_folder
from runtime.errors import UsageError
from runtime.ledger.ledger import Ledger
from runtime.maintenance.forget import Tables, Trace, look, referenced_documents, scrub
from runtime.maintenance.forget import forget as erase
from runtime.messages.envelope import canonical
from runtime.retries import RetryPolicy

# What `consistent forget` says: of each object what there was, and what names it and stays.

_COLUMNS = ("business id", "versions", "messages", "rows", "forgotten before")


def document(
    handler: str, traces: Mapping[str, Trace], files: Mapping[Path, int], *, restart: bool, dry_run: bool
) -> dict[str, Any]:
    """Return what `--json` gives."""
    objects = [
        {"business_id": business_id, **asdict(trace), "forgotten_at": moment_text(trace.forgotten_at)}
        for business_id, trace in traces.items()
    ]
    return {
        "dry_run": dry_run,
        "restart": restart,
        "handler": handler,
        "objects": objects,
        "files": [{"file": str(path), "rows": rows} for path, rows in files.items()],
    }


def parts(handler: str, traces: Mapping[str, Trace], files: Mapping[Path, int]) -> list[Any]:
    """Return tables of the objects, and of the files that name them."""
    shown: list[Any] = []
    if traces:
        shown.append(make_table(f"Objects of {handler}", _COLUMNS, map(_row, traces.items())))
    if files:
        named = [(str(path), rows) for path, rows in files.items()]
        shown.append(make_table("Files that name them, which stay as they are", ("file", "rows"), named))
    return shown


def documents_part(names: Sequence[str], *, deleted: bool) -> list[Any]:
    """Return a table of documents, if there are any."""
    title = "Documents" if deleted else "Documents that stay, as no --documents says where they are"
    return [make_table(title, ("name",), [(name,) for name in names])] if names else []


def _row(named: tuple[str, Trace]) -> tuple[Cell, ...]:
    business_id, trace = named
    rows = ", ".join(f"{count:,} {kind}" for kind, count in trace.rows.items())
    return business_id, trace.versions, trace.messages, rows or None, moment_cell(trace.forgotten_at)


HandlerName = Annotated[
    str, typer.Argument(metavar="HANDLER", show_default=False, help="The name of the handler.")
]
BusinessIds = Annotated[
    list[str],
    typer.Argument(metavar="BUSINESS_ID...", show_default=False, help="The ids of the business objects."),
]
Restart = Annotated[
    bool,
    typer.Option(
        "--restart",
        help="Begin a new history, for messages that are enqueued from now on, in place of refusing all messages.",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Write nothing, and say what would be erased.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
Out = Annotated[
    list[Path] | None,
    typer.Option(
        "--out",
        metavar="DIR",
        exists=True,
        file_okay=False,
        help="List the files of outcomes below this folder that name the objects; they are not changed.",
    ),
]
Export = Annotated[
    list[Path] | None,
    typer.Option(
        "--export",
        metavar="DIR",
        exists=True,
        file_okay=False,
        help="List the files of exports below this folder that name the objects; they are not changed.",
    ),
]

Documents = Annotated[
    str | None,
    typer.Option(
        "--documents",
        metavar="URL",
        help="Delete the documents of the objects too, which are kept there. Without it those are listed that versions "
        "refer to.",
    ),
]


@dataclass(frozen=True, slots=True)
class _Places:
    """Where the tables are that may hold something of an object."""

    states: Place
    ids: Place
    tokens: Place

    @classmethod
    def of(cls, states: Place, others: OtherStores) -> _Places:
        """Return the places that the options say."""
        return cls(states, others.deduplication.beside(states), others.tokens.beside(states))

    @property
    def each(self) -> Iterable[Place]:
        """Each place once."""
        return dict.fromkeys((self.states, self.ids, self.tokens))

    def check(self) -> None:
        """Raise `TableNotFoundError` when a table is not there."""
        for place in self.each:
            require_table(*place)


def forget(
    handler: HandlerName,
    business_ids: BusinessIds,
    *,
    store: StoreUrl,
    table: TableName,
    others: OtherStores,
    restart: Restart = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    out: Out = None,
    export: Export = None,
    documents: Documents = None,
    as_json: AsJson = False,
) -> None:
    r"""Erase business objects: versions, states, message ids, letters, outboxes, all but a tombstone.

        consistent forget LeaderBoard 7f0c...e2 --out outcomes --dry-run \
            --store sqlite:///store.db --table games

    Every later message of such an object is a dead letter with the reason `forgotten`; with --restart only messages
    that were enqueued before are refused, as too_late. With --documents all documents of the objects are deleted too.
    Nothing brings back what was erased. An SQLite file is written anew, so that no free page and no log holds it.
    Stopped at any moment it leaves objects that refuse messages; run it again to finish.
    """
    places = _Places.of(Place(store, table), others)
    places.check()
    spelled = list(dict.fromkeys(each for id_ in business_ids for each in (id_, canonical(id_))))
    stored = existing_documents(documents) if documents is not None else None
    traces, kept = asyncio.run(_look(places, handler, spelled, stored))
    files = _files_that_name([*(out or ()), *(export or ())], handler, spelled)
    screen = Screen(as_json)
    screen.show(*parts(handler, traces, files), *documents_part(kept, deleted=stored is not None))
    if not traces:
        raise NotPossibleError(f"The table {table} holds nothing of {handler} {', '.join(business_ids)}.")
    if not dry_run:
        _check_held(traces)
        if not yes:
            _ask(handler, traces)
        asyncio.run(_erase(places, handler, list(traces), stored, restart=restart))
        then = "begins a new history" if restart else "refuses all messages"
        screen.note(f"Erased. From now on {handler} {then} for {', '.join(traces)}.")
    described = document(handler, traces, files, restart=restart, dry_run=dry_run)
    screen.give({**described, "documents": {"names": kept, "deleted": stored is not None and not dry_run}})


def _check_held(traces: Mapping[str, Trace]) -> None:
    held = [trace.key for trace in traces.values() if trace.held]
    if held:
        raise NotPossibleError(
            f"A policy holds {', '.join(held)}: lift the hold (`consistent policy`) before."
        )


async def _look(
    places: _Places, handler: str, business_ids: Sequence[str], documents: ListedDocuments | None
) -> tuple[dict[str, Trace], list[str]]:
    """Return what there is of each object, and the names of documents: all in their store, or those that are known.

    Raises when its messages' ids or tokens are not where the options say.
    """
    async with AsyncExitStack() as stack:
        tables = await _open(places, stack)
        found = {business_id: await look(tables, handler, business_id) for business_id in business_ids}
        traces = {business_id: trace for business_id, trace in found.items() if trace is not None}
        elsewhere = {"deduplication-store": places.ids, "tokens": places.tokens}
        used = {trace.algorithm for trace in traces.values()}
        for algorithm, place in elsewhere.items():
            if algorithm not in used:
                continue
            described = described_algorithm(algorithm, None if place == places.states else place)
            await Ledger(tables.states, system_clock).check_table(described)
        names = [name for each in traces for name in await _names(tables.states, handler, each, documents)]
        return traces, names


async def _names(
    table: Table, handler: str, business_id: str, documents: ListedDocuments | None
) -> Sequence[str]:
    if documents is None:
        return await referenced_documents(table, handler, business_id)
    return await documents.names(object_folder(handler, business_id))


async def _erase(
    places: _Places,
    handler: str,
    business_ids: Sequence[str],
    documents: ListedDocuments | None,
    *,
    restart: bool,
) -> None:
    async with AsyncExitStack() as stack:
        tables = await _open(places, stack)
        for business_id in business_ids:
            await erase(
                tables,
                handler,
                business_id,
                system_clock(),
                restart=restart,
                retries=RetryPolicy(),
                documents=documents,
            )
        await scrub(tables)


async def _open(places: _Places, stack: AsyncExitStack) -> Tables:
    """Open each place once."""
    opened = {}
    for place in places.each:
        store = await stack.enter_async_context(connect(place.store))
        opened[place] = await store.table(place.table, make=False)
    return Tables(opened[places.states], opened[places.ids], opened[places.tokens])


def _ask(handler: str, traces: Mapping[str, Trace]) -> None:
    if not sys.stdin.isatty():
        raise UsageError("Nothing was erased: add --yes, as there is nobody to ask.")
    typer.confirm(f"Erase {counted(len(traces), 'object')} of {handler} for good?", abort=True, err=True)


def _files_that_name(
    folders: Sequence[Path], handler: str, business_ids: Sequence[str]
) -> Mapping[Path, int]:
    if not folders:
        return {}
    try:
        from runtime.archives.versions import files_that_name
    except ModuleNotFoundError as error:
        raise exports_need(error) from error
    return {
        path: rows
        for folder in folders
        for path, rows in files_that_name(folder, handler, business_ids).items()
    }
