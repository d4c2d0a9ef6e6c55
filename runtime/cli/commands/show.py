"""`consistent show` and `consistent streams`: the versions of one business object, and the objects of a table."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import RenderableType
from rich.text import Text

from eventstore import Stream, Table
from runtime.cli.checks import on_table
from runtime.cli.console import Cell, Screen, compact_json, make_facts, make_table, moment_cell, moment_text
from runtime.cli.failures import NotPossibleError, exports_need
from runtime.cli.options import AsJson, Limit, StoreUrl, TableName
from runtime.errors import UsageError
from runtime.messages.envelope import canonical
from runtime.versions.readable import changes, decode, readable
from runtime.versions.run import Version
from runtime.versions.stream import StreamSummary, stream_partition, summaries, versions
from runtime.versions.tail import Head, is_of_state, read_head

# State versions as JSON: in a few words for a list, or with all that is recorded.


def describe_version(stored: Version, *, whole: bool, diff: bool) -> dict[str, Any]:
    """Return a version for JSON: `whole` with all that is recorded, with `diff` what it changed."""
    version = stored.record
    before, after = decode(stored.before), decode(stored.after)
    described: dict[str, Any] = {
        "version": stored.number,
        "message_id": stored.message_id,
        "type": version.type,
        "now": moment_text(version.now),
        "enqueued_at": moment_text(version.enqueued_at),
        "batch": stored.batch,
        "changed": version.after is not None,
    }
    if whole:
        described |= {
            "written_at": moment_text(stored.written_at),
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


# State versions as tables.

_COLUMNS = ("version", "message", "type", "now", "enqueued at", "batch", "changed")
_STATES = ("before", "after")


def facts_of_stream(title: str, head: Head) -> RenderableType:
    """Return what a stream's header says."""
    facts: list[tuple[str, Cell]] = [
        ("versions", head.versions),
        ("kept from", head.kept_from),
        ("newest", moment_text(head.last_now)),
        ("horizon", moment_text(head.horizon)),
        ("letters that wait", head.waiting.count),
    ]
    if head.tombstone is not None:
        then = "and refuses all messages" if head.refuses else "and began a new history"
        facts.append(("forgotten", f"{moment_text(head.tombstone.at)}, {then}"))
    return make_facts(title, facts)


def table_of_versions(title: str, listed: Sequence[Version], *, diff: bool) -> RenderableType:
    """Return a row for each version, with its state or with what it changed."""
    last = "changes" if diff else "state"
    return make_table(title, [*_COLUMNS, last], (_row(stored, diff=diff) for stored in listed))


def facts_of_version(title: str, stored: Version, *, with_states: bool) -> Iterator[RenderableType]:
    """Give all that is recorded of a version, and the states before and after it."""
    described = describe_version(stored, whole=True, diff=False)
    states = {name: described.pop(name) for name in _STATES}
    del described["version"]
    yield make_facts(title, [(name.replace("_", " "), _fact(value)) for name, value in described.items()])
    if with_states:
        for name, state in states.items():
            yield Text(f"\nstate {name}", "dim")
            yield json.dumps(state, indent=2, ensure_ascii=False)


def table_of_changes(stored: Version) -> RenderableType:
    """Return a row for each field that a version changed."""
    found = changes(decode(stored.before), decode(stored.after))
    if not found:
        return Text("The state did not change.")
    rows = [(change.field, compact_json(change.before), compact_json(change.after)) for change in found]
    return make_table("Changes of the state", ("field", "before", "after"), rows)


def _row(stored: Version, *, diff: bool) -> tuple[Cell, ...]:
    version = stored.record
    return (
        stored.number,
        stored.message_id,
        version.type,
        moment_cell(version.now),
        moment_cell(version.enqueued_at),
        stored.batch,
        "yes" if version.after is not None else "no",
        _changes_text(stored) if diff else compact_json(decode(stored.after)),
    )


def _changes_text(stored: Version) -> str | None:
    found = changes(decode(stored.before), decode(stored.after))
    return (
        ", ".join(f"{each.field}: {compact_json(each.before)} → {compact_json(each.after)}" for each in found)
        or None
    )


def _fact(value: object) -> Cell:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return compact_json(value) if value else None
    return value if isinstance(value, str | int) else None


HandlerName = Annotated[
    str, typer.Argument(metavar="HANDLER", show_default=False, help="The name of the handler.")
]
BusinessId = Annotated[
    str, typer.Argument(metavar="BUSINESS_ID", show_default=False, help="The id of the business object.")
]
VersionNumber = Annotated[
    int | None, typer.Option("--version", metavar="V", min=1, help="Show all of this version.")
]
MessageId = Annotated[
    str | None,
    typer.Option("--message", metavar="ID", help="Show all of the version that this message made."),
]
Export = Annotated[
    Path | None,
    typer.Option(
        "--export",
        metavar="DIR",
        file_okay=False,
        show_default=False,
        help="Show what `consistent truncate --export` has written to this folder, in place of a table.",
    ),
]
Diff = Annotated[
    bool, typer.Option("--diff", help="Show what changed, field by field, in place of whole states.")
]


def show(
    handler: HandlerName,
    business_id: BusinessId,
    *,
    store: StoreUrl = "",
    table: TableName = "",
    export: Export = None,
    version: VersionNumber = None,
    message: MessageId = None,
    diff: Diff = False,
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
    if export is not None:
        business_id, head, kept = _read_export(export, handler, business_id)
    else:
        business_id, head, kept = _read_table(store, table, handler, business_id)
    screen = Screen(as_json)
    if version is None and message is None:
        _show_stream(screen, handler, business_id, head, kept[-limit:], diff=diff)
        return
    chosen = _find(kept, head, version, message)
    screen.give(
        {"handler": handler, "business_id": business_id, **describe_version(chosen, whole=True, diff=diff)}
    )
    screen.show(
        *facts_of_version(f"{handler} {business_id}, version {chosen.number}", chosen, with_states=not diff)
    )
    if diff:
        screen.show("", table_of_changes(chosen))


def _show_stream(
    screen: Screen, handler: str, business_id: str, head: Head, listed: Sequence[Version], *, diff: bool
) -> None:
    screen.give(
        {
            "handler": handler,
            "business_id": business_id,
            "newest_version": head.versions,
            "kept_from": head.kept_from,
            "newest": moment_text(head.last_now),
            "horizon": moment_text(head.horizon),
            "letters": head.waiting.count,
            "forgotten": moment_text(head.tombstone.at) if head.tombstone else None,
            "refuses": head.refuses,
            "state": decode(listed[-1].after) if listed else None,
            "versions": [describe_version(each, whole=False, diff=diff) for each in listed],
        }
    )
    screen.show(facts_of_stream(f"{handler} {business_id}", head), "")
    if head.waiting.count:
        screen.show(f"Letters that wait here: {head.waiting.count}. `consistent letters` lists them.", "")
    if not listed:
        if head.tombstone is None:
            screen.show("No message was processed yet.")
        return
    left_out = listed[0].number - head.kept_from
    title = f"The newest {len(listed)} of {left_out + len(listed)} versions" if left_out else "Versions"
    screen.show(table_of_versions(title, listed, diff=diff))


def _find(kept: Sequence[Version], head: Head, number: int | None, message: str | None) -> Version:
    wanted = None if message is None else canonical(message)
    for version in kept:
        if version.number == number or (wanted is not None and version.message_id == wanted):
            return version
    cut = f" Versions before {head.kept_from} have been cut." if head.kept_from > 1 else ""
    if number is not None:
        raise NotPossibleError(f"There is no version {number}: the newest is {head.versions}.{cut}")
    raise NotPossibleError(f"No version that is kept was made by message {message}.{cut}")


def _read_table(store: str, table: str, handler: str, business_id: str) -> tuple[str, Head, list[Version]]:
    for option, value in (("--store", store), ("--table", table)):
        if not value:
            raise UsageError(f"Give {option}, or --export to look into a folder.")
    found = on_table(store, table, lambda opened: _read(opened, handler, business_id))
    if found is None:
        raise NotPossibleError(
            f"There is no stream of {handler} for {business_id}: `consistent streams` lists them."
        )
    return found


def _read_export(folder: Path, handler: str, business_id: str) -> tuple[str, Head, list[Version]]:
    """Return the versions of a stream that are in an export, with what can be said of its head."""
    try:
        from runtime.archives.versions import ExportedVersions
    except ModuleNotFoundError as error:
        raise exports_need(error) from error
    exported = ExportedVersions(folder)
    for spelling in dict.fromkeys([business_id, canonical(business_id)]):
        kept = exported.of_stream(handler, spelling)
        if kept:
            newest = kept[-1]
            head = Head(None, newest.schema, newest.number, kept[0].number, newest.record.now)
            return spelling, head, kept
    raise NotPossibleError(f"There are no versions of {handler} for {business_id} in {folder}.")


async def _read(table: Table, handler: str, business_id: str) -> tuple[str, Head, list[Version]] | None:
    """Read a stream by its business id, or by the one spelling of it when it is a UUID, and return which it was."""
    for spelling in dict.fromkeys([business_id, canonical(business_id)]):
        stream = await Stream.try_open(stream_partition(table, handler, spelling))
        kept = await versions(table, handler, spelling)
        if stream is not None and kept is not None and is_of_state(stream.properties or {}):
            return spelling, read_head(stream.properties or {}), kept
    return None


# `consistent streams`: which state streams a table has.

Handler = Annotated[
    str | None, typer.Option("--handler", metavar="NAME", help="Only streams of this handler.")
]
Prefix = Annotated[
    str, typer.Option("--prefix", metavar="TEXT", show_default=False, help="Only business ids that begin so.")
]

_STREAM_COLUMNS = ("handler", "business id", "versions", "kept from", "runs", "newest", "horizon")


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
    screen.show(make_table(f"Streams of {table}", _STREAM_COLUMNS, map(_stream_row, listed)))
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


def _stream_row(summary: StreamSummary) -> tuple[Cell, ...]:
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
