"""`consistent show`: list business objects, show the versions of one, or count the rows of a table."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from rich.console import RenderableType
from rich.text import Text

from eventstore import Stream, Table
from runtime.batch_options import TablePlace
from runtime.cli.checks import on_table, require_table
from runtime.cli.console import Cell, Parts, Screen, compact_json, counted, iso, make_facts, make_table
from runtime.cli.failures import NotPossibleError
from runtime.cli.options import AsJson, Limit, ScanOptions, argument
from runtime.clock import moment
from runtime.errors import UsageError
from runtime.maintenance.statistics import HandlerCount, TableCount, count_objects, count_rows
from runtime.messages.envelope import canonical
from runtime.options import flag, option
from runtime.versions.head import Head, is_of_state, read_head
from runtime.versions.readable import changes, decode, describe_version, recognised
from runtime.versions.run import Version
from runtime.versions.stream import stream_key, stream_partition, summaries, versions

SHOWN = 20  # rows, by default


@dataclass(frozen=True)
class VersionOptions:
    """Options that apply to a single object."""

    version: int | None = option("Show this version of one object in full.", metavar="V", min=1)
    message: str | None = option("Show the version of one object that this message made.", metavar="ID")
    diff: bool = flag("Show changed fields instead of whole states.")

    def __post_init__(self) -> None:
        if self.version is not None and self.message is not None:
            raise UsageError("--version and --message exclude each other: use one of them.")


def show(
    handler: Annotated[str | None, argument("HANDLER", "Only objects of this handler.")] = None,
    business_id: Annotated[str | None, argument("BUSINESS_ID", "The id of one business object.")] = None,
    *,
    states: TablePlace,
    prefix: str = option("Only list business ids with this prefix.", default="", metavar="TEXT"),
    limit: Limit = SHOWN,
    chosen: VersionOptions,
    stats: bool = flag("Count the contents of the table by handler."),
    quick: bool = flag("With --stats: read only headers, and omit rows, bytes and the oldest version."),
    scan: ScanOptions,
    as_json: AsJson = False,
) -> None:
    r"""Show the objects of a table, or the versions of one: the message, time and resulting state of each.

        consistent show LeaderBoard --prefix 7f \
            --store sqlite:///store.db --table games
        consistent show LeaderBoard 7f0c...e2 --version 3 --diff \
            --store sqlite:///store.db --table games

    Without BUSINESS_ID it lists objects, with one request for each 1,000. With BUSINESS_ID it lists all kept versions
    of one object, with one request for each 1,000 runs. Outputs are not stored, so they are not shown.

        consistent show --stats --store sqlite:///store.db --table games

    Counts rows by handler. Outputs of unfinished messages may be unpublished, because their batch has not ended or
    their worker crashed. The horizon is the newest of all streams; see also `consistent sql @window`. Bytes are as
    charged by Azure Table Storage. Reads the whole table, with one request for each 1,000 rows or 4 MiB; with --quick
    two for each 1,000 objects.
    """
    screen = Screen(as_json)
    if handler is not None:
        stream_key(handler)  # raises for an invalid name
    is_one = handler is not None and business_id is not None
    of_one, of_many = chosen != VersionOptions(), bool(handler or prefix or limit != SHOWN)
    for is_refused, sentence in (
        (of_one and not is_one, "--version, --message and --diff need HANDLER and BUSINESS_ID."),
        (stats and of_many, "--stats counts a whole table: omit HANDLER, --prefix and --limit."),
        (quick and not stats, "--quick needs --stats."),
        (is_one and prefix, "--prefix selects from many objects: omit BUSINESS_ID or --prefix."),
        (scan != ScanOptions() and not stats, "--master, --remote, --settings and --log-file need --stats."),
    ):
        if is_refused:
            raise UsageError(sentence)
    if stats:
        _show_stats(screen, states, scan, quick=quick)
    elif handler is None or business_id is None:
        _show_streams(screen, states, handler, prefix, limit)
    else:
        found = on_table(states, lambda opened: _read(opened, handler, business_id))
        if found is None:
            other = f"`consistent show {handler}` lists all"
            raise NotPossibleError(f"There is no stream of {handler} for {business_id}: {other}.")
        _show_object(screen, handler, found, chosen, limit)


def _show_object(
    screen: Screen, handler: str, found: tuple[str, Head, list[Version]], options: VersionOptions, limit: int
) -> None:
    business_id, head, kept = found
    stream, diff = {"handler": handler, "business_id": business_id}, options.diff
    if options.version is None and options.message is None:
        listed = kept[-limit:]
        document = {
            **stream,
            "newest_version": head.versions,
            "kept_from": head.kept_from,
            "newest": moment(head.last_now or None),
            "horizon": moment(head.horizon),
            "undated_cut": head.undated_cut,
            "recognised": recognised(head),
            "letters": head.waiting.count,
            "forgotten": moment(head.tombstone.at) if head.tombstone else None,
            "refuses": head.refuses,
            "state": decode(listed[-1].after) if listed else None,
            "versions": [describe_version(each, whole=False, diff=diff) for each in listed],
        }
        screen.put(document, *_parts_of_stream(document, listed, diff=diff))
        return
    chosen = _find(kept, head, options.version, options.message)
    title = f"{handler} {business_id}, version {chosen.number}"
    document = {**stream, **describe_version(chosen, whole=True, diff=diff)}
    screen.put(document, *_parts_of_version(title, chosen, diff=diff))


async def _read(table: Table, handler: str, business_id: str) -> tuple[str, Head, list[Version]] | None:
    """Return id, head and versions of the object with an id or its canonical form, or None if it does not exist."""
    for spelling in dict.fromkeys([business_id, canonical(business_id)]):
        stream = await Stream.try_open(stream_partition(table, handler, spelling))
        kept = await versions(table, handler, spelling)
        if stream is not None and kept is not None and is_of_state(stream.properties or {}):
            return spelling, read_head(stream.properties or {}), kept
    return None


def _find(kept: Sequence[Version], head: Head, number: int | None, message: str | None) -> Version:
    wanted = None if message is None else canonical(message)
    for version in kept:
        if version.number == number or (wanted is not None and version.message_id == wanted):
            return version
    cut = f" Versions before {head.kept_from} were truncated." if head.kept_from > 1 else ""
    if number is not None:
        raise NotPossibleError(f"There is no version {number}: the newest is {head.versions}.{cut}")
    raise NotPossibleError(f"Message {message} made none of the versions kept.{cut}")


def _parts_of_stream(stream: dict[str, Any], listed: Sequence[Version], *, diff: bool) -> Parts:
    """Yield the facts of a stream, and a table of versions with their states or, with `diff`, the changes."""
    waiting, forgotten = stream["letters"], stream["forgotten"]
    shown = {"versions": "newest_version", "kept from": "kept_from", "newest": "newest", "horizon": "horizon"}
    facts: list[tuple[str, Cell]] = [(name, stream[key]) for name, key in shown.items()]
    facts.append(("dead letters", waiting))
    if forgotten is not None:
        then = "and rejects all messages" if stream["refuses"] else "and started a new history"
        facts.append(("forgotten", f"{iso(forgotten)}, {then}"))
    yield make_facts(f"{stream['handler']} {stream['business_id']}", facts)
    yield ""
    yield stream["recognised"]
    if waiting:
        yield "`consistent letters` lists the dead letters."
        yield ""
    if not listed:
        if forgotten is None:
            yield "No messages were processed yet."
        return
    left_out = listed[0].number - stream["kept_from"]
    title = f"The newest {len(listed)} of {left_out + len(listed)} versions" if left_out else "Versions"
    rows, last_column = [], "changes" if diff else "state"
    for described in stream["versions"]:
        found = [f"{c['field']}: {_change(c)}" for c in described.get("changes", ())]
        last = ", ".join(found) or None if diff else compact_json(described["state"])
        rows.append({**described, last_column: last})
    columns = ("version", "message_id", "type", "now", "enqueued_at", "batch", "changed", last_column)
    yield make_table(title, columns, rows)


def _change(change: dict[str, Any]) -> str:
    return f"{compact_json(change['before'])} → {compact_json(change['after'])}"


def _parts_of_version(title: str, stored: Version, *, diff: bool) -> Parts:
    """Yield all recorded data of a version, and the states before and after it or, with `diff`, the changes."""
    described = describe_version(stored, whole=True, diff=False)
    states = {name: described.pop(name) for name in ("before", "after")}
    del described["version"]
    facts: list[tuple[str, Cell]] = []
    for name, value in described.items():
        cell = compact_json(value) if isinstance(value, dict) and value else value or None
        facts.append((name.replace("_", " "), cell))
    yield make_facts(title, facts)
    if not diff:
        for name, state in states.items():
            yield Text(f"\nstate {name}", "dim")
            yield json.dumps(state, indent=2, ensure_ascii=False)
        return
    yield ""
    found = changes(states["before"], states["after"])
    if not found:
        yield Text("The state did not change.")
        return
    rows = [(each.field, compact_json(each.before), compact_json(each.after)) for each in found]
    yield make_table("Changes of the state", ("field", "before", "after"), rows)


def _show_streams(screen: Screen, states: TablePlace, handler: str | None, prefix: str, limit: int) -> None:
    rows: list[dict[str, Any]] = []

    async def read(table: Table) -> bool:
        async for summary in summaries(table, handler, prefix):
            if limit and len(rows) == limit:
                return True
            head = summary.head
            row = {name: getattr(summary, name) for name in ("handler", "business_id")}
            row |= {"versions": head.versions, "kept_from": head.kept_from, "runs": summary.runs}
            row |= {"newest": moment(head.last_now or None), "horizon": moment(head.horizon)}
            rows.append(row)
        return False

    is_more = on_table(states, read)
    parts: list[RenderableType] = ["There are no matching streams."]
    if rows:
        parts = [make_table(f"Streams of {states.table}", tuple(rows[0]), rows)]
    if is_more:
        parts.append(f"There are more than {limit} streams: use --limit, HANDLER or --prefix.")
    screen.put({"streams": rows, "more": is_more}, *parts)


def count_table(states: TablePlace, scan: ScanOptions, *, quick: bool = False) -> TableCount:
    """Count the contents of a table by handler. `quick` reads only headers."""
    count = TableCount()
    scan.scan(states, count_objects if quick else count_rows, count.merge, step="Counting")
    return count


_HEADINGS = {"versions": "messages", "kept": "versions kept", "oldest": "oldest version"}
_SLOW = ("oldest", "rows", "bytes")


def _show_stats(screen: Screen, states: TablePlace, scan: ScanOptions, *, quick: bool) -> None:
    require_table(states)
    count = count_table(states, scan, quick=quick)
    shown = [name for name in HandlerCount._fields if not (quick and name in _SLOW)]
    columns = {name: _HEADINGS.get(name, name) for name in shown}
    rows = []
    for each in count.handlers:
        row = each._asdict() | {"horizon": moment(each.horizon), "oldest": moment(each.oldest)}
        rows.append({name: row[name] for name in shown})
    document: dict[str, Any] = {"handlers": rows}
    parts: list[RenderableType] = [f"The table {states.table} contains no business objects."]
    if rows:
        parts = [make_table(f"Contents of {states.table}", columns, rows)]
    if not quick:
        others = document["others"] = {"rows": count.others.rows, "bytes": count.others.bytes}
        if others["rows"]:
            said = counted(others["rows"], "row")
            parts.append(f"Others: {said} of the ledger, tokens etc., {others['bytes']:,} bytes")
    screen.put(document, *parts)
