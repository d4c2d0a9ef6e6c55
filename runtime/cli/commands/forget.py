"""`consistent forget`: erase business objects."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import RenderableType

from eventstore import connect
from runtime.algorithms.choice import described_algorithm
from runtime.batch_options import TablePlace
from runtime.cli.checks import confirm, require_table
from runtime.cli.console import Screen, counted, make_table, moment
from runtime.cli.failures import NotPossibleError, needing
from runtime.cli.options import AsJson, AuxiliaryStores, Yes
from runtime.clock import system_clock
from runtime.documents.store import ListedDocuments, existing_documents, object_folder
from runtime.ledger.ledger import Ledger
from runtime.maintenance.forget import Tables, Trace, find_trace, referenced_documents, scrub
from runtime.maintenance.forget import forget as erase
from runtime.messages.envelope import canonical
from runtime.options import option
from runtime.retries import RetryPolicy


@dataclass(frozen=True)
class FilesLookedAt:
    """Where files are that may name the objects."""

    out: list[Path] | None = option(
        "List the files of outcomes below this folder that name the objects; they are not changed.",
        default=None,
        metavar="DIR",
        exists=True,
        file_okay=False,
    )
    export: list[Path] | None = option(
        "List the files of exports below this folder that name the objects; they are not changed.",
        default=None,
        metavar="DIR",
        exists=True,
        file_okay=False,
    )


def forget(
    handler: Annotated[
        str, typer.Argument(metavar="HANDLER", show_default=False, help="The name of the handler.")
    ],
    business_ids: Annotated[
        list[str],
        typer.Argument(metavar="BUSINESS_ID...", show_default=False, help="The ids of the business objects."),
    ],
    *,
    states: TablePlace,
    others: AuxiliaryStores,
    restart: bool = option(
        "Begin a new history, for messages that are enqueued from now on, in place of refusing all messages.",
        default=False,
    ),
    dry_run: bool = option("Write nothing, and say what would be erased.", default=False),
    yes: Yes = False,
    files: FilesLookedAt,
    documents: str | None = option(
        "Delete the documents of the objects too, which are kept there. Without it those are listed that "
        "versions refer to.",
        default=None,
        metavar="URL",
    ),
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
    places = _Places(states, others.ids(states), others.tokens(states))
    for place in places.each:
        require_table(place)
    spelled = list(dict.fromkeys(each for id_ in business_ids for each in (id_, canonical(id_))))
    stored = existing_documents(documents) if documents is not None else None
    traces, kept = asyncio.run(_find_traces(places, handler, spelled, stored))
    named = _files_that_name([*(files.out or ()), *(files.export or ())], handler, spelled)
    screen = Screen(as_json)
    screen.show(*_parts(handler, traces, named, kept, are_deleted=stored is not None))
    missing = [id_ for id_ in business_ids if not {id_, canonical(id_)} & traces.keys()]
    if missing:
        rest = " Nothing was erased: leave them out to erase the others." if traces else ""
        raise NotPossibleError(
            f"The table {states.table} holds nothing of {handler} {', '.join(missing)}.{rest}"
        )
    if dry_run:
        screen.show("Nothing was erased: this is what would be.")
    else:
        held = [trace.key for trace in traces.values() if trace.held]
        if held:
            raise NotPossibleError(
                f"A policy holds {', '.join(held)}: lift the hold (`truncate --policy remove --hold`) before."
            )
        confirm(f"Erasing {counted(len(traces), 'object')} of {handler}", yes=yes)
        asyncio.run(_erase(places, handler, list(traces), stored, restart=restart))
        then = "begins a new history" if restart else "refuses all messages"
        screen.note(f"Erased. From now on {handler} {then} for {', '.join(traces)}.")
    objects = [
        {"business_id": business_id, **asdict(trace), "forgotten_at": moment(trace.forgotten_at)}
        for business_id, trace in traces.items()
    ]
    screen.put(
        {
            "dry_run": dry_run,
            "restart": restart,
            "handler": handler,
            "objects": objects,
            "files": [{"file": str(path), "rows": rows} for path, rows in named.items()],
            "documents": {"names": kept, "deleted": stored is not None and not dry_run},
        }
    )


@dataclass(frozen=True, slots=True)
class _Places:
    """Where the tables are that may hold something of an object."""

    states: TablePlace
    ids: TablePlace
    tokens: TablePlace

    @property
    def each(self) -> Iterable[TablePlace]:
        """Each place once."""
        return dict.fromkeys((self.states, self.ids, self.tokens))

    async def open(self, stack: AsyncExitStack) -> Tables:
        """Open each place once."""
        opened = {}
        for place in self.each:
            store = await stack.enter_async_context(connect(place.store))
            opened[place] = await store.table(place.table, make=False)
        return Tables(opened[self.states], opened[self.ids], opened[self.tokens])


async def _find_traces(
    places: _Places, handler: str, business_ids: Sequence[str], documents: ListedDocuments | None
) -> tuple[dict[str, Trace], list[str]]:
    """Return what there is of each object, and the names of documents: all in their store, or those that are known.

    Raises when its messages' ids or tokens are not where the options say.
    """
    async with AsyncExitStack() as stack:
        tables = await places.open(stack)
        found = {business_id: await find_trace(tables, handler, business_id) for business_id in business_ids}
        traces = {business_id: trace for business_id, trace in found.items() if trace is not None}
        used = {trace.algorithm for trace in traces.values()}
        for algorithm, place in (("deduplication-store", places.ids), ("tokens", places.tokens)):
            if algorithm in used:
                elsewhere = None if place == places.states else (place.store, place.table)
                described = described_algorithm(algorithm, elsewhere)
                await Ledger(tables.states, system_clock).check_table(described)
        names: list[str] = []
        for business_id in traces:
            if documents is None:
                names += await referenced_documents(tables.states, handler, business_id)
            else:
                names += await documents.names(object_folder(handler, business_id))
        return traces, names


async def _erase(
    places: _Places,
    handler: str,
    business_ids: Sequence[str],
    documents: ListedDocuments | None,
    *,
    restart: bool,
) -> None:
    async with AsyncExitStack() as stack:
        tables = await places.open(stack)
        how: dict[str, Any] = {"restart": restart, "retries": RetryPolicy(), "documents": documents}
        for business_id in business_ids:
            await erase(tables, handler, business_id, system_clock(), **how)
        await scrub(tables)


def _files_that_name(
    folders: Sequence[Path], handler: str, business_ids: Sequence[str]
) -> Mapping[Path, int]:
    if not folders:
        return {}
    with needing("Exports need"):
        from runtime.archives.versions import files_that_name
    found: dict[Path, int] = {}
    for folder in folders:
        found |= files_that_name(folder, handler, business_ids)
    return found


def _parts(
    handler: str,
    traces: Mapping[str, Trace],
    files: Mapping[Path, int],
    documents: Sequence[str],
    *,
    are_deleted: bool,
) -> list[RenderableType]:
    """Return tables of the objects, of the files that name them, and of their documents, if there are any."""
    shown = []
    if traces:
        columns = ("business id", "versions", "messages", "rows", "forgotten before")
        rows = []
        for business_id, trace in traces.items():
            kinds = ", ".join(f"{count:,} {kind}" for kind, count in trace.rows.items())
            before = moment(trace.forgotten_at)
            rows.append((business_id, trace.versions, trace.messages, kinds or None, before))
        shown.append(make_table(f"Objects of {handler}", columns, rows))
    if files:
        named = [(str(path), count) for path, count in files.items()]
        shown.append(make_table("Files that name them, which stay as they are", ("file", "rows"), named))
    if documents:
        title = "Documents" if are_deleted else "Documents that stay, as no --documents says where they are"
        shown.append(make_table(title, ("name",), [(name,) for name in documents]))
    return shown
