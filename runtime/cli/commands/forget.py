"""`consistent forget`: erase business objects."""

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from rich.console import RenderableType

from eventstore import connect
from runtime.algorithms.choice import described_algorithm
from runtime.batch_options import TablePlace
from runtime.cli.checks import confirm, require_table
from runtime.cli.console import Screen, counted, make_table
from runtime.cli.failures import NotPossibleError, needing
from runtime.cli.options import WITH_OTHER_TABLE, AsJson, AuxiliaryStore, Yes, argument
from runtime.clock import moment, system_clock
from runtime.documents import ListedDocuments, existing_documents, object_folder
from runtime.ledger.ledger import Ledger
from runtime.maintenance.forget import Tables, Trace, find_trace, referenced_documents, scrub
from runtime.maintenance.forget import forget as erase
from runtime.messages.envelope import canonical
from runtime.options import flag, option
from runtime.retries import RetryPolicy


def forget(
    handler: Annotated[str, argument("HANDLER", "The name of the handler.")],
    business_ids: Annotated[list[str], argument("BUSINESS_ID...", "The ids of the business objects.")],
    *,
    states: TablePlace,
    others: AuxiliaryStore,
    restart: bool = flag("Start a new history with messages enqueued from now on, instead of rejecting all."),
    dry_run: bool = flag("Write nothing, and show what would be erased."),
    yes: Yes = False,
    out: list[Path] | None = option(
        "List the files in this folder of outcomes or exports that mention the objects. They are not changed.",
        exists=True,
        file_okay=False,
    ),
    documents: str | None = option(
        "Also delete the objects' documents in this folder or store. By default, documents that versions refer to are "
        "only listed.",
        metavar="URL",
    ),
    as_json: AsJson = False,
) -> None:
    r"""Erase business objects: versions, states, message ids, dead letters and outboxes. Only a tombstone remains.

        consistent forget LeaderBoard 7f0c...e2 --out outcomes --dry-run \
            --store sqlite:///store.db --table games

    Later messages of a forgotten object become dead letters with the reason `forgotten`. With --restart, only messages
    enqueued before the erasure are rejected, as too_late. --documents also deletes the objects' documents. Erased data
    cannot be restored: an SQLite file is rewritten, so that no free page or log contains it. After an interruption the
    objects reject messages; run the command again to finish.
    """
    places = require_table(states), require_table(others.place(states))
    spelled = list(dict.fromkeys(each for id_ in business_ids for each in (id_, canonical(id_))))
    stored = existing_documents(documents) if documents is not None else None
    traces, kept = asyncio.run(_find_traces(places, handler, spelled, stored))
    named: dict[Path, int] = {}
    for folder in out or ():
        with needing("Exports need"):
            from runtime.archives.versions import files_that_name
        named |= files_that_name(folder, handler, spelled)
    screen = Screen(as_json)
    screen.show(*_parts(handler, traces, named, kept, are_deleted=stored is not None))
    missing = [id_ for id_ in business_ids if not {id_, canonical(id_)} & traces.keys()]
    if missing:
        rest = " Nothing was erased: omit them to erase the others." if traces else ""
        of = f"{handler} {', '.join(missing)}"
        raise NotPossibleError(f"The table {states.table} contains nothing of {of}.{rest}")
    if dry_run:
        screen.show("Dry run: nothing was erased.")
    else:
        held = ", ".join(trace.key for trace in traces.values() if trace.held)
        if held:
            lift = "lift the hold first (`truncate --policy remove --hold`)"
            raise NotPossibleError(f"A policy holds {held}: {lift}.")
        confirm(f"Erasing {counted(len(traces), 'object')} of {handler}", yes=yes)
        asyncio.run(_erase(places, handler, traces, documents=stored, restart=restart))
        then = "starts a new history" if restart else "rejects all messages"
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


_Places = tuple[TablePlace, TablePlace]  # of the states, and of ids or tokens


@asynccontextmanager
async def _opened(places: _Places, used: Collection[str | None] = WITH_OTHER_TABLE) -> AsyncIterator[Tables]:
    """Context manager that opens the table of the states, and that of the ids or tokens.

    For each algorithm in `WITH_OTHER_TABLE`, `Tables` has the table of the ids or tokens if the algorithm is in `used`,
    otherwise the table of the states, so that only algorithms in `used` access the other table.
    """
    async with AsyncExitStack() as stack:
        opened = {}
        for place in dict.fromkeys(places):
            store = await stack.enter_async_context(connect(place.store))
            opened[place] = await store.table(place.table, make=False)
        states, other = (opened[place] for place in places)
        yield Tables(states, *(other if algorithm in used else states for algorithm in WITH_OTHER_TABLE))


async def _find_traces(
    places: _Places, handler: str, business_ids: Sequence[str], documents: ListedDocuments | None
) -> tuple[dict[str, Trace], list[str]]:
    """Return the rows of each existing object by business id, and the names of all documents of these objects.

    If `documents` is None, the names are those to which versions refer, otherwise those that `documents` lists. Raises
    `BatchRefusedError` if the objects have ids or tokens in a table that is not in `places`.
    """
    states, other = places
    async with _opened(places) as tables:
        found = {business_id: await find_trace(tables, handler, business_id) for business_id in business_ids}
        traces = {business_id: trace for business_id, trace in found.items() if trace is not None}
        used = {trace.algorithm for trace in traces.values()}
        elsewhere = None if other == states else (other.store, other.table)
        for algorithm in (each for each in WITH_OTHER_TABLE if each in used):
            await Ledger(tables.states, system_clock).check_table(described_algorithm(algorithm, elsewhere))
        names: list[str] = []
        for business_id in traces:
            if documents is None:
                names += await referenced_documents(tables.states, handler, business_id)
            else:
                names += await documents.names(object_folder(handler, business_id))
        return traces, names


async def _erase(places: _Places, handler: str, traces: Mapping[str, Trace], **how: Any) -> None:  # noqa: ANN401 - of `erase`
    async with _opened(places, {trace.algorithm for trace in traces.values()}) as tables:
        for business_id in traces:
            await erase(tables, handler, business_id, system_clock(), retries=RetryPolicy(), **how)
        await scrub(tables)


def _parts(
    handler: str,
    traces: Mapping[str, Trace],
    files: Mapping[Path, int],
    documents: Sequence[str],
    *,
    are_deleted: bool,
) -> list[RenderableType]:
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
        shown.append(make_table("Files that mention them (unchanged)", ("file", "rows"), named))
    if documents:
        title = "Documents" if are_deleted else "Documents that stay, because --documents is missing"
        shown.append(make_table(title, ("name",), [(name,) for name in documents]))
    return shown
