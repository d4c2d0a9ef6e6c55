"""`consistent reprocess`, `switch` and `fork`: handle a history again, use the result, and fork one object."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from html import escape
from itertools import chain
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eventstore import connect
from handlers.codec import unpack
from runtime.batch_options import BatchOptions, TablePlace
from runtime.cli.batch_command import OF_ANY_BATCH, BatchChoices, command_on, resumable
from runtime.cli.checks import check_file, check_folder, check_log, load_app, require_table
from runtime.cli.console import Screen, counted, iso, make_table
from runtime.cli.failures import TOO_MANY_DEAD_LETTERS
from runtime.cli.options import AppSpec, AsJson, Limit, Messages, argument, only
from runtime.errors import LogError, UsageError
from runtime.maintenance.switch import Fork
from runtime.maintenance.switch import fork as fork_object
from runtime.maintenance.switch import switch as switch_table
from runtime.messages.envelope import canonical
from runtime.options import REQUIRED, flag, option, option_of
from runtime.versions.readable import describe_version, readable

if TYPE_CHECKING:
    from runtime.spark.reprocessing import Rows
    from runtime.versions.run import Version

_OF_REPROCESSING = {*OF_ANY_BATCH, "source", "log_format", "decoding"} - {"cascade", "documents", "adopt"}


def reprocess(
    *,
    app: AppSpec,
    messages: Messages,
    batch: Annotated[BatchChoices, only("states", "out", "batch_id", "spark")],
    into: str = option("The second table of the store, new or reused.", default=REQUIRED, metavar="TABLE2"),
    was: str | None = option(
        "The app that made the history, if methods were edited without a revision. It computes the old outputs.",
        metavar="MODULE:ATTRIBUTE",
    ),
    as_of: str | None = option("Handle the history up to the end of this batch.", metavar="BATCH"),
    object_: str | None = option(
        "Handle only objects with this business id. The log must contain all their messages.",
        name="--object",
        metavar="ID",
    ),
    capture: bool = flag("Capture missing values now. By default, their messages become dead letters."),
    report: Path = option(
        "The folder for the report: report.html, and the differences as Parquet.",
        default=Path("reprocessed"),
        file_okay=False,
    ),
    max_changes: int | None = option(
        "Exit with code 3 if more messages than this have another state or other outputs.", metavar="N", min=0
    ),
    options: Annotated[BatchOptions, only(*_OF_REPROCESSING)],
    limit: Limit = 10,
    as_json: AsJson = False,
) -> None:
    r"""Handle the history of a table again with other handlers, into a second table, and report the differences.

        consistent reprocess --app fair:app --messages log.parquet \
            --store sqlite:///store.db --table games --into games2 --out again

    The messages of an object are handled in the order of its versions, with the recorded clock, draws and captured
    values. A changed output replaces the old one, a new output follows the recorded history of its object, and the
    version of a removed output is omitted. Nothing is published, and TABLE is not changed. TABLE2 stores only objects
    that differ.

    Name all logs of the history, separated by spaces. A stopped reprocessing resumes with its --batch-id. To include
    newer messages, run it again with all logs and the same --into. `consistent switch` activates TABLE2.
    """
    from runtime.spark.logs.read import check_alone

    loaded, made_by = load_app(app), None if was is None else load_app(was)
    screen, logs, states, spark = Screen(as_json), _logs(messages), batch.states, batch.spark
    log = logs if len(logs) > 1 else logs[0]
    check_alone(log)
    spark.check_scope(states)
    given = (options.log_format, options.source, options.decoding)
    log_bytes = sum(check_log(each, spark.place, *given) or 0 for each in logs)
    require_table(states)
    check_folder(batch.out, spark.place)
    check_folder(str(report), spark.place, "The report", "--report")
    batch = batch.announced(screen)
    scope: dict[str, Any] = {"as_of": as_of, "business_id": object_}
    tables: dict[str, Any] = {**asdict(states), "into": into, "out": batch.out, "batch_id": batch.batch_id}
    stopped = "Stopped. Nothing is lost: run it again with its --batch-id."
    with spark.working(stopped, log_bytes or None) as (session, progress):
        from runtime.spark import reprocessing

        how = {**vars(replace(options, step=progress.step)), "was": made_by, "capture": capture}
        with resumable(batch.batch_id or "", TablePlace(states.store, into)):
            done = reprocessing.reprocess(session, log, loaded, **tables, **scope, **how)
        progress.step("Comparing")
        different = reprocessing.differences(done.result.outcomes).persist()
        different.write.mode("overwrite").parquet(str(report.absolute() / "differences"))
        parts = reprocessing.report(done, different, 1000)
        changed = different.where("state <> 'object'").count()
        objects = different.count() - changed
        progress.done()
    said = f"{counted(changed, 'message')} differ, and the final state of {counted(objects, 'object')}."
    page = _page(f"{states.table} handled again by {app}", said, parts)
    (report / "report.html").write_text(page, encoding="utf-8")
    counts = {"batch_id": batch.batch_id, "into": into, "changed": changed, "objects": objects}
    most = limit or None
    shown = [(make_table(title, list(rows[0]), rows[:most]), "") for title, rows in parts.items() if rows]
    screen.put({**counts, "tables": parts}, *chain.from_iterable(shown), said)
    screen.show(f"The report is in {report / 'report.html'}.")
    if not done.missing and object_ is as_of is None:
        screen.show("To use the second table:", f"  {command_on('switch', states, into)}")
    if max_changes is not None and changed > max_changes:
        screen.note(f"{counted(changed, 'message')} differ, more than --max-changes {max_changes}.")
        raise typer.Exit(TOO_MANY_DEAD_LETTERS)


def _page(title: str, said: str, tables: Mapping[str, Rows]) -> str:
    """Return the report as a self-contained HTML page. `said` is the summary, `tables` maps headings to rows."""
    parts = []
    for heading, rows in tables.items():
        if rows:
            head = "".join(f"<th>{escape(name)}</th>" for name in rows[0])
            body = "".join(f"<tr>{''.join(map(_cell, row, row.values()))}</tr>" for row in rows)
            parts.append(f"<h2>{escape(heading)}</h2><table><tr>{head}</tr>{body}</table>")
    template = Template(Path(__file__).with_name("report.html").read_text(encoding="utf-8"))
    return template.substitute(title=escape(title), said=said, tables="\n".join(parts))


def _cell(column: str, value: object) -> str:
    kind = column if column in ("before", "after") else "number" if isinstance(value, int) else ""
    return f'<td class="{kind}">{escape("" if value is None else str(value))}</td>'


def switch(
    tables: Annotated[list[str], argument("[TABLE] TABLE2", "The table (or --table) and its successor.")],
    *,
    store: str = option_of(TablePlace, "store", group=""),
    table: str | None = option_of(TablePlace, "table", default=None, group=""),
    as_json: AsJson = False,
) -> None:
    r"""Use a reprocessed table instead of the original.

        consistent switch games games2 --store sqlite:///store.db

    Batches, streams, consumers and commands that name TABLE use TABLE2 from their next start on. Dead letters,
    policies, batches and all equal objects are copied first; then one conditional write switches. The switch is
    rejected while a batch of either table is open, and if TABLE has messages that were not reprocessed. Stop consumers
    first, and restart them afterwards.

        consistent switch games2 games --store sqlite:///store.db

    The same command with the names exchanged switches back. It is rejected once a batch, a message, or a command such
    as forget has changed TABLE2.
    """
    *first, into = tables
    name = (*first, table)[0]
    if len(first) > 1 or name is None:
        raise UsageError("Name two tables, the first one (or --table) and the one that replaces it.")
    require_table(TablePlace(store, name))

    async def work() -> int | None:
        async with connect(store) as opened:
            return await switch_table(opened, name, into)

    copied = asyncio.run(work())
    said = f"{name} is switched to {into}: {counted(copied or 0, 'object')} copied."
    if copied is None:
        said = f"{name} is switched to {into} already: nothing was changed."
    Screen(as_json).put({"table": name, "switched_to": into, "copied": copied or 0}, said)


def fork(
    handler: Annotated[str, argument("HANDLER", "The handler.")],
    business_id: Annotated[str, argument("BUSINESS_ID", "The object.")],
    *,
    states: TablePlace,
    at: int | None = option("The last version to copy. Default: the newest.", metavar="VERSION", min=1),
    into: str | None = option("The new table, in the same store. Default: a random name.", metavar="TABLE2"),
    case: Path | None = option(
        "Also write this version to a file, for `HandlerSpec.from_export` in a test. Needs --messages.",
        dir_okay=False,
    ),
    messages: Annotated[
        str,
        option(
            "Files or folders of the log with the message.",
            default="",
            metavar="LOG",
            group="log",
            is_rare=False,
        ),
    ] = "",
    as_json: AsJson = False,
) -> None:
    r"""Copy the history of one object into a separate table, to experiment with it.

        consistent fork LeaderBoard 7f0c...e2 --at 3 --into trial \
            --store sqlite:///store.db --table games

    Use the copy with `consistent run --table TABLE2`, `show` and `explore`. `runtime.fork` does the same in Python. The
    first table is not changed. Reads the object with one request for each 1,000 runs.
    """
    if (case is None) is not (messages == ""):
        raise UsageError("--case and --messages must be used together.")
    if messages.startswith(("kafka:", "env:")):
        raise UsageError("--case reads files: name those of the log in --messages, not topics of Kafka.")
    require_table(states)
    check_file(case)

    def export(version: Version) -> None:
        if case is not None:
            found = _case(handler, canonical(business_id), version, _logs(messages))
            case.write_text(json.dumps(found, indent=2, ensure_ascii=False, default=iso), encoding="utf-8")

    async def work() -> Fork:
        async with connect(states.store) as store:
            of = states.table, handler, business_id
            return await fork_object(store, *of, at=at, into=into, check=export)

    made = asyncio.run(work())
    said = f"{made.name} has {handler} {business_id} up to version {made.version.number}."
    Screen(as_json).put({"table": made.name, "version": made.version.number}, said)


def _case(handler: str, business_id: str, version: Version, logs: Sequence[str]) -> dict[str, Any]:
    """Return a version in the form that `HandlerSpec.from_export` reads. Finds the body of its message in `logs`.

    Raises `LogError` if no log contains the message.
    """
    from runtime.spark.logs.read import messages_on_disk

    body, whole = None, version.message_id
    for id_ in filter(None, (whole, whole.partition(":")[2])):  # the log may lack the prefix of --source
        rows = (row for log in logs for row in messages_on_disk(log))
        body = body or next((row["body"] for row in rows if canonical(row["message_id"]) == id_), None)
    if body is None:
        raise LogError(f"{', '.join(logs)}: the message {version.message_id} is missing. Add its log.")
    captured, described = version.record.captured or {}, describe_version(version, whole=True, diff=False)
    # Values that JSON cannot hold are exported twice: to read, and as msgpack.
    packed = {
        name: value.hex()
        for name, value in captured.items()
        if readable(value) != unpack(value, strict_map_key=False)
    }
    names = ("message_id", "type", "headers", "now", "captured", "schema", "before", "after")
    return {
        "handler": handler,
        "business_id": business_id,
        "body": json.loads(body) if isinstance(body, str) else body,
        "packed": packed,
        **{name: described[name] for name in names},
    }


def _logs(messages: str) -> list[str]:
    """Split a list of logs at its commas. An existing path or a `kafka:` URL is one log, even if it contains commas."""
    is_one = messages.startswith("kafka:") or Path(messages).exists()
    return [messages] if is_one else messages.split(",")
