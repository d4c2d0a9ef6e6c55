"""`consistent show` and `consistent streams`: the versions of one business object, and the objects of a table."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import RenderableType
from rich.text import Text

from eventstore import Stream, Table
from runtime.batch_options import TablePlace
from runtime.cli.checks import on_table
from runtime.cli.console import Cell, Screen, compact_json, iso, make_facts, make_table, moment
from runtime.cli.failures import NotPossibleError, needing
from runtime.cli.options import AsJson, Limit
from runtime.clock import shown_time
from runtime.errors import UsageError
from runtime.messages.envelope import canonical
from runtime.options import option, option_of
from runtime.versions.readable import changes, decode, readable
from runtime.versions.run import Version
from runtime.versions.stream import StreamSummary, stream_key, stream_partition, summaries, versions
from runtime.versions.tail import Head, is_of_state, read_head


def show(
    handler: Annotated[
        str, typer.Argument(metavar="HANDLER", show_default=False, help="The name of the handler.")
    ],
    business_id: Annotated[
        str,
        typer.Argument(metavar="BUSINESS_ID", show_default=False, help="The id of the business object."),
    ],
    *,
    store: str = option_of(TablePlace, "store", default="", group=""),
    table: str = option_of(TablePlace, "table", default="", group=""),
    export: Path | None = option(
        "Show what `consistent truncate --export` has written to this folder, in place of a table.",
        default=None,
        metavar="DIR",
        file_okay=False,
    ),
    version: int | None = option("Show all of this version.", default=None, metavar="V", min=1),
    message: str | None = option(
        "Show all of the version that this message made.", default=None, metavar="ID"
    ),
    diff: bool = option("Show what changed, field by field, in place of whole states.", default=False),
    limit: Limit = 20,
    as_json: AsJson = False,
) -> None:
    r"""Show the versions of one state stream: which message made each, when, and the state after it.

        consistent show --store sqlite:///store.db --table games LeaderBoard \
            7f0c...e2 --version 3 --diff

    It reads the whole history that is kept of the stream, with one request for each 1,000 runs. Outputs are not
    stored and so not shown: they are what handling the message again on the state before it gives.
    """
    if version is not None and message is not None:
        raise UsageError("Give --version or --message, not both.")
    stream_key(handler)
    if export is not None:
        business_id, head, kept = _read_export(export, handler, business_id)
    else:
        for option, value in (("--store", store), ("--table", table)):
            if not value:
                raise UsageError(f"Give {option}, or --export to look into a folder.")
        found = on_table(TablePlace(store, table), lambda opened: _read(opened, handler, business_id))
        if found is None:
            raise NotPossibleError(
                f"There is no stream of {handler} for {business_id}: `consistent streams` lists them."
            )
        business_id, head, kept = found
    screen, stream = Screen(as_json), {"handler": handler, "business_id": business_id}
    if version is None and message is None:
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
    chosen = _find(kept, head, version, message)
    title = f"{handler} {business_id}, version {chosen.number}"
    screen.put(
        {**stream, **describe_version(chosen, whole=True, diff=diff)},
        *_parts_of_version(title, chosen, diff=diff),
    )


async def _read(table: Table, handler: str, business_id: str) -> tuple[str, Head, list[Version]] | None:
    """Read a stream by its business id, or by the one spelling of it when it is a UUID, and return which it was."""
    for spelling in dict.fromkeys([business_id, canonical(business_id)]):
        stream = await Stream.try_open(stream_partition(table, handler, spelling))
        kept = await versions(table, handler, spelling)
        if stream is not None and kept is not None and is_of_state(stream.properties or {}):
            return spelling, read_head(stream.properties or {}), kept
    return None


def _read_export(folder: Path, handler: str, business_id: str) -> tuple[str, Head, list[Version]]:
    """Return the versions of a stream that are in an export, with what can be said of its head."""
    with needing("Exports need"):
        from runtime.archives.versions import ExportedVersions
    exported = ExportedVersions(folder)
    for spelling in dict.fromkeys([business_id, canonical(business_id)]):
        kept = exported.of_stream(handler, spelling)
        if kept:
            newest = kept[-1]
            head = Head(None, newest.schema, newest.number, kept[0].number, newest.record.now)
            return spelling, head, kept
    raise NotPossibleError(f"There are no versions of {handler} for {business_id} in {folder}.")


def _find(kept: Sequence[Version], head: Head, number: int | None, message: str | None) -> Version:
    wanted = None if message is None else canonical(message)
    for version in kept:
        if version.number == number or (wanted is not None and version.message_id == wanted):
            return version
    cut = f" Versions before {head.kept_from} have been cut." if head.kept_from > 1 else ""
    if number is not None:
        raise NotPossibleError(f"There is no version {number}: the newest is {head.versions}.{cut}")
    raise NotPossibleError(f"No version that is kept was made by message {message}.{cut}")


def recognised(head: Head) -> str:
    """Return what a cut of the stream means for a message that is delivered now."""
    if head.horizon is None and not head.undated_cut:
        return "No version was cut: each duplicate is recognised, however old it is."
    undated = (
        "An unknown message without enqueued_at is too_late."
        if head.undated_cut
        else "Messages without enqueued_at are all recognised."
    )
    if head.horizon is None:
        return f"Each duplicate with enqueued_at is recognised, however old it is. {undated}"
    return (
        f"Duplicates that were enqueued after {shown_time(head.horizon)} are recognised for certain. An unknown "
        f"message of that time or before is too_late. {undated}"
    )


def describe_version(stored: Version, *, whole: bool, diff: bool) -> dict[str, Any]:
    """Return a version for JSON: `whole` with all that is recorded, with `diff` what it changed."""
    version = stored.record
    before, after = decode(stored.before), decode(stored.after)
    described: dict[str, Any] = {
        "version": stored.number,
        "message_id": stored.message_id,
        "type": version.type,
        "now": moment(version.now),
        "enqueued_at": moment(version.enqueued_at),
        "batch": stored.batch,
        "changed": version.after is not None,
    }
    if whole:
        described |= {
            "written_at": moment(stored.written_at),
            "headers": dict(version.headers or {}),
            "captured": {name: readable(value) for name, value in (version.captured or {}).items()},
            "revision": version.revision,
            "schema": stored.schema,
            "fingerprint": version.fingerprint.hex(),
            "outputs_digest": version.outputs_digest.hex(),
            "state_digest": version.state_digest.hex(),
            "before": before,
        }
    described["after" if whole else "state"] = after
    if diff:
        described["changes"] = [asdict(change) for change in changes(before, after)]
    return described


def _parts_of_stream(
    stream: dict[str, Any], listed: Sequence[Version], *, diff: bool
) -> Iterator[RenderableType]:
    """Yield what the header of a stream says, and a row for each version, with its state or with what it changed."""
    waiting, forgotten = stream["letters"], stream["forgotten"]
    facts: list[tuple[str, Cell]] = [
        ("versions", stream["newest_version"]),
        ("kept from", stream["kept_from"]),
        ("newest", _text(stream["newest"])),
        ("horizon", _text(stream["horizon"])),
        ("letters that wait", waiting),
    ]
    if forgotten is not None:
        then = "and refuses all messages" if stream["refuses"] else "and began a new history"
        facts.append(("forgotten", f"{_text(forgotten)}, {then}"))
    yield make_facts(f"{stream['handler']} {stream['business_id']}", facts)
    yield ""
    yield stream["recognised"]
    if waiting:
        yield f"Letters that wait here: {waiting}. `consistent letters` lists them."
        yield ""
    if not listed:
        if forgotten is None:
            yield "No message was processed yet."
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


def _text(time: Any) -> Any:  # noqa: ANN401 - a time, or None
    return None if time is None else iso(time)


def _parts_of_version(title: str, stored: Version, *, diff: bool) -> Iterator[RenderableType]:
    """Yield all that is recorded of a version, and the states before and after it, or what changed."""
    described = describe_version(stored, whole=True, diff=False)
    states = {name: described.pop(name) for name in ("before", "after")}
    del described["version"]
    facts: list[tuple[str, Cell]] = []
    for name, value in described.items():
        cell = compact_json(value) if isinstance(value, dict) and value else value or None
        facts.append((name.replace("_", " "), _text(value) if isinstance(value, datetime) else cell))
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


# `consistent streams`: which state streams a table has.


def streams(
    *,
    states: TablePlace,
    handler: str | None = option("Only streams of this handler.", default=None, metavar="NAME"),
    prefix: str = option("Only business ids that begin so.", default="", metavar="TEXT"),
    limit: Limit = 50,
    as_json: AsJson = False,
) -> None:
    r"""List the state streams of a table, one for each handler and business object.

        consistent streams --store sqlite:///store.db --table games \
            --handler LeaderBoard --prefix 7f

    It reads the header row of each stream, 1,000 with one request, and no history. With --handler and --prefix
    together only the streams that match are read; with --prefix alone all headers are.
    """
    rows: list[dict[str, Any]] = []

    async def read(table: Table) -> bool:
        """Read the first streams, and return whether there are more."""
        async for summary in summaries(table, handler, prefix):
            if limit and len(rows) == limit:
                return True
            rows.append(_described(summary))
        return False

    is_more = on_table(states, read)
    parts: list[RenderableType] = ["There are no such streams."]
    if rows:
        parts = [make_table(f"Streams of {states.table}", tuple(rows[0]), rows)]
    if is_more:
        parts.append(f"There are more than these {limit}: see --limit, --handler and --prefix.")
    Screen(as_json).put({"streams": rows, "more": is_more}, *parts)


def _described(summary: StreamSummary) -> dict[str, Any]:
    head = summary.head
    return {
        "handler": summary.handler,
        "business_id": summary.business_id,
        "versions": head.versions,
        "kept_from": head.kept_from,
        "runs": summary.runs,
        "newest": moment(head.last_now or None),
        "horizon": moment(head.horizon),
    }
