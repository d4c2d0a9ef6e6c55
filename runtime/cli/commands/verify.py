"""`consistent verify` and `consistent check`: replay stored versions with today's code, and find corrupt rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import RenderableType

from runtime.algorithms.state_based.replay import Verdict
from runtime.batch_options import TablePlace, VerifyOptions
from runtime.cli.checks import check_log, load_app, require_table
from runtime.cli.console import Parts, Screen, counted, make_table
from runtime.cli.failures import FAILED
from runtime.cli.options import AppSpec, AsJson, Limit, Messages, ScanOptions, SparkOptions
from runtime.maintenance.check import Checked, check_table
from runtime.options import flag

if TYPE_CHECKING:
    from runtime.spark.verification import FirstDifference, VerdictCount


def check(
    *,
    states: TablePlace,
    repair: bool = flag("Rebuild derived data: the index of message ids, counts and markers."),
    scan: ScanOptions,
    limit: Limit = 50,
    as_json: AsJson = False,
) -> None:
    """Read a whole table, and report rows that are corrupt or contradict each other.

        consistent check --store sqlite:///store.db --table games

    Writes nothing without --repair, which rebuilds derived data: the index of message ids, counts of dead letters and
    entries, and markers. It also deletes events below the watermark. Streams with other faults are left unchanged:
    restore them from an export.

    Reads the whole table: one request for each 1,000 rows or 4 MiB, and two more for each fault. With --master or
    --remote the table is split by keys and checked on all workers, for two more requests for each 1,000 objects. The
    exit code is 1 if anything is corrupt.
    """
    found, screen = Checked(), Screen(as_json)
    stopped = "Stopped. Repairs so far are kept: run the same command again to finish."
    function = partial(check_table, repair=repair)
    scan.scan(states, function, lambda each: found.update(Checked.of(each)), step="Checking", stopped=stopped)
    is_sound = "" if found.repaired or found.faults else " Nothing is corrupt."
    read = f"Read {counted(found.rows, 'row')}, of {counted(found.streams, 'stream')} and others.{is_sound}"
    parts: list[RenderableType] = [read]
    for title, faults in (("Repaired", found.repaired), ("Corrupt", found.faults)):
        if faults:
            rows = [(each.stream, each.row, each.problem, each.repair) for each in faults[: limit or None]]
            parts.append(make_table(title, ("stream", "row", "what", "can be repaired"), rows))
    screen.put(found.document(), *parts)
    if found.damaged:
        left = counted(found.damaged, "fault")
        screen.note(f"{left}. Restore from an export what --repair cannot rebuild.")
        raise typer.Exit(FAILED)


_ADVICE = {
    Verdict.NONDETERMINISTIC: "A changed rule needs a new revision: keep the old method with its number, and mark the "
    "new one @handles(by=..., revision=N). If the change is already deployed, first roll back and redrive.",
    Verdict.REPLAY_FAILED: "A method now fails on messages that it handled before: keep it unchanged as its revision, "
    "and add another one.",
    Verdict.REVISION_GONE: "Restore these revisions until the versions that they made are truncated.",
    Verdict.STATE_UNREADABLE: "A changed state needs a new schema version, and upcasters from all earlier ones.",
    Verdict.REFUSED: "Today's message types reject these messages: give new fields defaults.",
    Verdict.STREAM_DAMAGED: "These streams are corrupt and were not compared: run `consistent check`.",
    Verdict.STREAM_LOST: "Today's app no longer uses these streams, so it would handle their messages again: keep the "
    'field that `by` names, and the handler\'s name (class New(Handler[...], name="Old")).',
    Verdict.ID_REUSED: "Messages with the id of another one were not compared: in a batch they become dead letters.",
    Verdict.NOT_KEPT: "Messages whose versions may be truncated were not compared: in a batch they are too late. Use "
    "--export with the folder of `consistent truncate --export`.",
    Verdict.UNKNOWN: "Messages without a stored version were not compared: in a batch they are new messages, or become "
    "dead letters.",
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
    r"""Replay a log against the stored versions with today's handlers, and show the differences. Writes nothing.

        consistent verify --app samples.shooting_range:app \
            --messages log.parquet --cascade --sample 0.01 \
            --store sqlite:///store.db --table games

    Run it before deploying changed handlers. Each message with a stored version is replayed like a duplicate, and its
    outputs and state are compared with the record. A version that differs, fails or is rejected would turn a duplicate
    into a dead letter: give the changed method a new revision, a changed state a new schema version, a renamed message
    an alias.

    --export also compares truncated versions that were exported.

    The exit code is 1 if anything differs. Messages without a stored version are only counted, and do not affect the
    exit code. Costs one query for each stream, and more for versions outside its header.
    """
    loaded = load_app(app)
    from runtime.archives.versions import ExportedVersions
    from runtime.spark.verification import verify as compare

    if options.export is not None:
        ExportedVersions(Path(options.export))  # rejects an export without versions before Spark is started
    spark.check_scope(states)
    log_bytes = check_log(messages, spark.place, options.log_format, options.source)
    states = require_table(states)
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
            *_parts(found.counts, differences),
        )
    if not found.is_clean:
        raise typer.Exit(FAILED)


_DIFFERENT = [verdict for verdict in Verdict if verdict.is_difference]


def _total(counts: Sequence[VerdictCount], *verdicts: Verdict) -> int:
    """Return the number of deliveries with one of the verdicts, or of all deliveries if no verdict is given."""
    return sum(each.deliveries for each in counts if each.verdict in (verdicts or Verdict))


def _parts(counts: Sequence[VerdictCount], differences: Sequence[FirstDifference]) -> Parts:
    columns = ("handler", "type", "revision", "verdict", "deliveries", "streams")
    rows = [asdict(each) | {"handler": each.handler or "(none)"} for each in counts]
    yield make_table("Results with today's code", columns, rows)
    yield ""
    if differences:
        streams = sum(each.streams for each in counts if each.verdict.is_difference)
        more = f" ({len(differences)} of {streams:,})" if streams > len(differences) else ""
        names = ("handler", "business_id", "version", "message_id", "type", "revision", "what differs")
        differing = [asdict(each) | {"what differs": f"{each.verdict}: {each.error}"} for each in differences]
        yield make_table(f"The first version of each stream that differs{more}", names, differing)
        yield ""
    for verdict, sentence in _ADVICE.items():
        if any(each.verdict is verdict for each in counts):
            yield f"{verdict}: {sentence}"
    for each in counts:
        for error, count in each.reasons:
            yield f"  {count:,} x {error}"
    matches, different = _total(counts, Verdict.MATCH), _total(counts, *_DIFFERENT)
    of_all = counted(_total(counts), "delivery")
    if any(each.verdict.is_difference for each in counts):  # a lost stream has no deliveries
        yield f"{different:,} of {of_all} differ; {matches:,} match."
    else:
        yield f"No stored version differs: {matches:,} of {of_all} match."
