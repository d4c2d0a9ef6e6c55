"""`consistent verify` and `consistent check`: replay stored versions with today's code, and find corrupt rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import RenderableType

from runtime.algorithms.state_based.verification import Verdict
from runtime.batch_options import TablePlace, VerifyOptions
from runtime.cli.checks import check_log, load_app, require_table
from runtime.cli.console import Screen, counted, make_table
from runtime.cli.failures import FAILED
from runtime.cli.options import AppSpec, AsJson, Limit, Messages, ScanOptions, SparkOptions
from runtime.maintenance.check import Checked, check_table
from runtime.options import option

if TYPE_CHECKING:
    from runtime.spark.verification import FirstDifference, VerdictCount


def check(
    *,
    states: TablePlace,
    repair: bool = option(
        "Rebuild what is derived from other rows: the index of message ids, counts, markers.", default=False
    ),
    scan: ScanOptions,
    limit: Limit = 50,
    as_json: AsJson = False,
) -> None:
    r"""Read a table whole, and say which rows do not decode or do not agree with each other.

        consistent check --store sqlite:///store.db --table games

    Nothing is written without --repair. That rebuilds what is derived from other rows: the index of message ids, the
    counts of letters and entries, and markers; it deletes events below the watermark. A stream with any other fault is
    left as it is: restore it from an export.

    It reads the whole table: one request for each 1,000 rows or 4 MiB, and two more for what is damaged. With --master
    or --remote the table is split by its keys, which costs two more for each 1,000 objects, and checked on all workers.
    The exit code is 1 when something is damaged.
    """
    found = Checked()
    scan.scan(
        states,
        partial(check_table, repair=repair),
        lambda document: found.update(Checked.of(document)),
        step="Checking",
        stopped="Stopped. What was repaired stays so: run the same command again for the rest.",
    )
    screen = Screen(as_json)
    parts: list[RenderableType] = [
        f"{counted(found.rows, 'row')} of {counted(found.streams, 'stream')} and others were read."
        + ("" if found.repaired or found.faults else " Nothing is damaged.")
    ]
    for title, faults in (("Repaired", found.repaired), ("Damaged", found.faults)):
        if faults:
            rows = [(each.stream, each.row, each.problem, each.repair) for each in faults[: limit or None]]
            parts.append(make_table(title, ("stream", "row", "what", "can be repaired"), rows))
    screen.put(found.document(), *parts)
    if found.damaged:
        screen.note(
            f"{counted(found.damaged, 'fault')}. Restore what --repair cannot rebuild from an export."
        )
        raise typer.Exit(FAILED)


_ADVICE = {
    Verdict.NONDETERMINISTIC: "A changed rule needs a new revision: keep the old method with its number, and give the "
    "new one @handles(by=..., revision=N). If it is deployed already, go back to the old one first, and redrive.",
    Verdict.REPLAY_FAILED: "A method that handled these messages fails on them now: keep it as the revision that it "
    "was, and add another.",
    Verdict.REVISION_GONE: "Bring these revisions back, until truncation has cut the versions that they made.",
    Verdict.STATE_UNREADABLE: "A changed state needs a new schema version, and an upcaster from each one before.",
    Verdict.REFUSED: "Today's message types no longer take these messages: give new fields defaults.",
    Verdict.STREAM_DAMAGED: "These streams cannot be read, and nothing of them was compared: see `consistent check`.",
    Verdict.STREAM_LOST: "Today's app does not look for these streams, so that their messages would be handled again: "
    'keep what `by` names, and the handler\'s name (class New(Handler[...], name="Old")).',
}
_REMARKS = {
    Verdict.ID_REUSED: "Messages with the id of another one were not compared: they are dead letters in a batch.",
    Verdict.NOT_KEPT: "Messages whose versions may have been cut were not compared: a batch takes them for too late. "
    "Give what `consistent truncate --export` wrote as --export.",
    Verdict.UNKNOWN: "Messages without a stored version were not compared: a batch would handle them for the first "
    "time, or make them dead letters.",
}


def verify(
    *,
    app: AppSpec,
    messages: Messages,
    states: TablePlace,
    options: VerifyOptions,
    limit: Limit = 10,
    spark: SparkOptions,
    as_json: AsJson = False,
) -> None:
    r"""Replay a log against the stored versions with today's handlers, write nothing, and show what differs.

        consistent verify --app samples.shooting_range:app \
            --messages log.parquet --cascade --sample 0.01 \
            --store sqlite:///store.db --table games

    Run it before changed handlers are deployed: each message of the log that has a stored version is handled again
    as a duplicate would be, and its outputs and next state are compared with what is recorded. A version that differs,
    that cannot be replayed, or that today's types refuse would make a duplicate a dead letter; give the changed
    method a new revision, the changed state a new schema version, a renamed message an alias.

    With --export, versions that were cut are compared as well: the whole history that was exported.

    The exit code is 1 when anything differs. Messages without a stored version have nothing to be compared with: they
    are counted, and the exit code is 0. One query for each stream, more for versions that are not in its header.
    """
    loaded = load_app(app)
    from runtime.archives.versions import ExportedVersions
    from runtime.spark.verification import verify as compare

    if options.export is not None:
        ExportedVersions(
            Path(options.export)
        )  # an export without versions is refused before Spark is started
    spark.check_scope(states)
    log_bytes = check_log(messages, spark.place, options.log_format, options.source)
    require_table(states)
    with spark.working("Stopped. Nothing was written.", log_bytes) as (session, progress):
        given = vars(replace(options, step=progress.step))
        found = compare(session, messages, loaded, store=states.store, table=states.table, **given)
        differences = [] if found.is_clean else found.first_differences(limit)
        progress.done()
        Screen(as_json).put(
            {
                "is_clean": found.is_clean,
                "deliveries": _total(found.counts),
                "matches": _total(found.counts, Verdict.MATCH),
                "different": _total(found.counts, *_DIFFERENT),
                "counts": [asdict(count) for count in found.counts],
                "differences": [asdict(each) for each in differences],
            },
            *_parts(found.counts, differences, is_clean=found.is_clean),
        )
    if not found.is_clean:
        raise typer.Exit(FAILED)


_DIFFERENT = [verdict for verdict in Verdict if verdict.is_difference]


def _total(counts: Sequence[VerdictCount], *verdicts: Verdict) -> int:
    """Return how many deliveries have one of some verdicts, by default all."""
    return sum(each.deliveries for each in counts if each.verdict in (verdicts or Verdict))


def _parts(
    counts: Sequence[VerdictCount], differences: Sequence[FirstDifference], *, is_clean: bool
) -> Iterator[RenderableType]:
    """Yield what was found for people: counts, examples of what differs, and what to do about it."""
    columns = ("handler", "type", "revision", "verdict", "deliveries", "streams")
    rows = [asdict(each) | {"handler": each.handler or "(none)"} for each in counts]
    yield make_table("What today's code gives for these deliveries", columns, rows)
    yield ""
    if differences:
        streams = sum(each.streams for each in counts if each.verdict.is_difference)
        shown = len(differences)
        more = f" ({shown} of {streams:,})" if streams > shown else ""
        names = ("handler", "business_id", "version", "message_id", "type", "revision", "what differs")
        differing = [asdict(each) | {"what differs": f"{each.verdict}: {each.error}"} for each in differences]
        yield make_table(f"The first version of each stream that differs{more}", names, differing)
        yield ""
    for verdict, sentence in {**_ADVICE, **_REMARKS}.items():
        if any(each.verdict is verdict for each in counts):
            yield f"{verdict}: {sentence}"
    for each in counts:
        for error, count in each.reasons:
            yield f"  {count:,} x {error}"
    matches, of_all = _total(counts, Verdict.MATCH), counted(_total(counts), "delivery")
    if is_clean:
        yield f"No stored version differs: {matches:,} of {of_all} match."
    else:
        different = _total(counts, *_DIFFERENT)
        yield f"{different:,} of {of_all} would no longer give what they gave; {matches:,} match."
