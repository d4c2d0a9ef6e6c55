"""`consistent reprocess`, `switch` and `fork`: handle a history again, use the result, and fork one object."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eventstore import connect
from runtime.batch_options import BatchOptions, TablePlace
from runtime.cli.batch_command import OF_ANY_BATCH, BatchChoices, command_on, resumable
from runtime.cli.checks import check_file, check_folder, check_log, load_app, require_table
from runtime.cli.console import Screen, counted, iso, make_table
from runtime.cli.failures import TOO_MANY_DEAD_LETTERS
from runtime.cli.options import AppSpec, AsJson, Limit, Messages, only
from runtime.clock import to_datetime
from runtime.errors import LogError, UsageError
from runtime.ledger.settings import open_current
from runtime.maintenance.switch import fork as fork_object
from runtime.maintenance.switch import switch as switch_table
from runtime.messages.envelope import canonical
from runtime.options import REQUIRED, option
from runtime.versions.readable import decode, readable

if TYPE_CHECKING:
    from runtime.spark.reprocessing import Rows
    from runtime.versions.run import Version

_OF_REPROCESSING = frozenset(OF_ANY_BATCH) - {"cascade", "documents", "adopt"} | {
    "source",
    "log_format",
    "decoding",
}


def reprocess(
    *,
    app: AppSpec,
    messages: Messages,
    batch: Annotated[BatchChoices, only("states", "out", "batch_id", "spark")],
    into: str = option(
        "The second table, in the same store: new, or of an earlier reprocessing.",
        default=REQUIRED,
        metavar="TABLE2",
    ),
    was: str | None = option(
        "The app that made the history, if methods were edited without a revision. It computes the old outputs.",
        default=None,
        metavar="MODULE:ATTRIBUTE",
    ),
    as_of: str | None = option(
        "Handle the history up to the end of this batch.", default=None, metavar="BATCH"
    ),
    object_: str | None = option(
        "Handle only objects with this business id. The log must contain all their messages.",
        default=None,
        name="--object",
        metavar="ID",
    ),
    capture: bool = option(
        "Capture missing values now. By default, messages without a recorded value become dead letters.",
        default=False,
    ),
    report: Path = option(
        "The folder for the report: report.html, and the differences as Parquet.",
        default=Path("reprocessed"),
        metavar="DIR",
        file_okay=False,
    ),
    max_changes: int | None = option(
        "Exit with code 3 if more messages than this have another state or other outputs.",
        default=None,
        metavar="N",
        min=0,
    ),
    options: Annotated[BatchOptions, only(*_OF_REPROCESSING)],
    limit: Limit = 10,
    as_json: AsJson = False,
) -> None:
    r"""Handle the history of a table again with other handlers, into a second table, and report what differs.

        consistent reprocess --app fair:app --messages log.parquet \
            --store sqlite:///store.db --table games --into games2 --out again

    The messages of an object are handled in the order of its versions, with the recorded clock, draws and captured
    values. A changed output replaces the old one, a new output follows the recorded history of its object, and the
    version of a removed output is omitted. Nothing is published, and TABLE is not changed. TABLE2 stores only objects
    that differ.

    Name all logs of the history, separated by commas. A stopped reprocessing resumes with its --batch-id. To include
    newer messages, run it again with all logs and the same --into. `consistent switch` activates TABLE2.
    """
    loaded, made_by = load_app(app), None if was is None else load_app(was)
    logs = [messages] if Path(messages).exists() else messages.split(",")
    states, spark = batch.states, batch.spark
    spark.check_scope(states)
    given = (options.log_format, options.source, options.decoding)
    log_bytes = sum(check_log(each, spark.place, *given) or 0 for each in logs)
    states = require_table(states)
    check_folder(batch.out, spark.place)
    check_folder(str(report), spark.place, "The report", "--report")
    screen = Screen(as_json)
    batch = batch.announced(screen)
    second = TablePlace(states.store, into)
    with spark.working("Stopped. Nothing is lost: run it again with its --batch-id.", log_bytes or None) as (
        session,
        progress,
    ):
        from runtime.spark import reprocessing

        more = vars(replace(options, step=progress.step))
        with resumable(batch.batch_id or "", second):
            done = reprocessing.reprocess(
                session,
                logs,
                loaded,
                store=states.store,
                table=states.table,
                into=into,
                out=batch.out,
                was=made_by,
                as_of=as_of,
                business_id=object_,
                capture=capture,
                batch_id=batch.batch_id,
                **more,
            )
        progress.step("Comparing")
        different = reprocessing.differences(done.result.outcomes).persist()
        different.write.mode("overwrite").parquet(str(report.absolute() / "differences"))
        tables = reprocessing.report(done, different, 1000)
        changed = different.where("state <> 'object'").count()
        objects = different.count() - changed
        progress.done()
    said = f"{counted(changed, 'message')} differ, and the final state of {counted(objects, 'object')}."
    page = _page(f"{states.table} handled again by {app}", said, tables)
    (report / "report.html").write_text(page, encoding="utf-8")
    counts = {"batch_id": batch.batch_id, "into": into, "changed": changed, "objects": objects}
    shown = [
        make_table(title, list(rows[0]), rows[: limit or None]) for title, rows in tables.items() if rows
    ]
    screen.put({**counts, "tables": tables}, *(each for table in shown for each in (table, "")), said)
    screen.show(f"The report is in {report / 'report.html'}.")
    if done.result.record.rounds and not done.missing and object_ is None:
        screen.show("To use the second table:", f"  {command_on('switch', states, into)}")
    if max_changes is not None and changed > max_changes:
        screen.note(f"{counted(changed, 'message')} differ, more than --max-changes {max_changes}.")
        raise typer.Exit(TOO_MANY_DEAD_LETTERS)


_STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 72rem; padding: 0 1rem; }
table { border-collapse: collapse; display: block; overflow-x: auto; }
th, td { border-bottom: 1px solid color-mix(in srgb, currentColor 20%, transparent); padding: .3rem .7rem; }
th { text-align: left; }
td.number { text-align: right; font-variant-numeric: tabular-nums; }
td.before { color: light-dark(#a40000, #ff8a80); }
td.after { color: light-dark(#006b1f, #7ee29b); }
"""


def _page(title: str, said: str, tables: Mapping[str, Rows]) -> str:
    """Return the report as a self-contained HTML page."""
    parts = [f"<h1>{escape(title)}</h1><p>{said}</p>"]
    for heading, rows in tables.items():
        if rows:
            head = "".join(f"<th>{escape(name)}</th>" for name in rows[0])
            body = "".join(f"<tr>{''.join(map(_cell, row, row.values()))}</tr>" for row in rows)
            parts.append(f"<h2>{escape(heading)}</h2><table><tr>{head}</tr>{body}</table>")
    head = f'<meta charset="utf-8"><title>{escape(title)}</title><style>{_STYLE}</style>'
    return f'<!doctype html><html lang="en">{head}{"".join(parts)}</html>\n'


def _cell(column: str, value: object) -> str:
    kind = column if column in ("before", "after") else "number" if isinstance(value, int) else ""
    return f'<td class="{kind}">{escape("" if value is None else str(value))}</td>'


def switch(
    into: Annotated[
        str, typer.Argument(metavar="TABLE2", show_default=False, help="The table to use instead.")
    ],
    *,
    states: TablePlace,
    as_json: AsJson = False,
) -> None:
    r"""Use a reprocessed table instead of the first one.

        consistent switch games2 --store sqlite:///store.db --table games

    Batches, streams, consumers and commands that name TABLE use TABLE2 from their next start on. Objects without
    differences are copied first; then one conditional write switches. It is rejected while a batch of either table is
    open, and if TABLE has messages that were not reprocessed. Stop consumers before, and restart them.

        consistent switch games --store sqlite:///store.db --table games2

    Switches back, which is possible until TABLE2 has another batch. Changes by consumers of TABLE2 are lost.
    """
    require_table(states)

    async def work() -> int:
        async with connect(states.store) as store:
            return await switch_table(store, states.table, into)

    copied = asyncio.run(work())
    said = f"{states.table} is switched to {into}: {counted(copied, 'object')} copied that are equal."
    Screen(as_json).put({"table": states.table, "switched_to": into, "copied": copied}, said)


def fork(
    handler: Annotated[str, typer.Argument(metavar="HANDLER", show_default=False, help="The handler.")],
    business_id: Annotated[
        str, typer.Argument(metavar="BUSINESS_ID", show_default=False, help="The object.")
    ],
    *,
    states: TablePlace,
    at: int | None = option(
        "The last version to copy. Default: the newest.", default=None, metavar="VERSION", min=1
    ),
    into: str = option("The new table, in the same store.", default=REQUIRED, metavar="TABLE2"),
    case: Path | None = option(
        "Also write this version to a file, for `HandlerSpec.from_export` in a test. Needs --messages.",
        default=None,
        metavar="FILE",
        dir_okay=False,
    ),
    messages: Messages = "",
    as_json: AsJson = False,
) -> None:
    r"""Copy the history of one object into a table of its own, to try something on it.

        consistent fork LeaderBoard 7f0c...e2 --at 3 --into trial \
            --store sqlite:///store.db --table games

    Use it with `consistent run --table TABLE2` and `consistent show`. The first table is not changed. Reads the object
    with one request for each 1,000 runs.
    """
    if (case is None) is not (messages == ""):
        raise UsageError("--case and --messages must be used together.")
    require_table(states)
    check_file(case)

    async def work() -> Version:
        async with connect(states.store) as store:
            _, table = await open_current(store, states.table, make=False)
            return await fork_object(table, await store.table(into), handler, business_id, at)

    last = asyncio.run(work())
    if case is not None:
        case.write_text(json.dumps(_case(last, messages), indent=2, ensure_ascii=False), encoding="utf-8")
    said = f"{into} has {handler} {business_id} up to version {last.number}."
    Screen(as_json).put({"table": into, "version": last.number}, said)


def _case(version: Version, log: str) -> dict[str, Any]:
    """Return the JSON form of a version, with the body of its message, which is read from a log."""
    from runtime.spark.logs.read import messages_on_disk

    record = version.record
    found = next(
        (each for each in messages_on_disk(log) if canonical(each["message_id"]) == version.message_id), None
    )
    if found is None:
        raise LogError(f"{log} lacks the message {version.message_id}: use the log that has it.")
    body = found["body"]
    return {
        "message_id": version.message_id,
        "type": record.type,
        "body": json.loads(body) if isinstance(body, str) else body,
        "headers": dict(record.headers) if record.headers else None,
        "now": iso(to_datetime(record.now)),
        "captured": {name: readable(value) for name, value in (record.captured or {}).items()},
        "schema": version.schema,
        "before": decode(version.before),
        "after": decode(version.after),
    }
