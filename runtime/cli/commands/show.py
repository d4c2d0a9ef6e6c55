"""`consistent show`: one state stream, version by version."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from eventstore import Stream, Table
from runtime.cli.console import Screen
from runtime.cli.failures import NotPossibleError, exports_need
from runtime.cli.options import AsJson, Limit, StoreUrl, TableName
from runtime.cli.reports.tables import moment_text
from runtime.cli.reports.version_tables import (
    facts_of_stream,
    facts_of_version,
    table_of_changes,
    table_of_versions,
)
from runtime.cli.reports.versions import describe_version
from runtime.cli.stores import on_table
from runtime.errors import UsageError
from runtime.messages.message_ids import canonical
from runtime.storage.head import Head, is_of_state, read_head
from runtime.storage.listing import versions
from runtime.storage.readable_states import decode
from runtime.storage.stream import stream_partition
from runtime.storage.version import Version

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
