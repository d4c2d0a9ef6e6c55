"""`consistent verify` and `consistent check`: replay stored versions with today's code, and find corrupt rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import RenderableType

from eventstore import connect
from runtime.algorithms.state_based.verification import Verdict
from runtime.batch_options import BatchOptions
from runtime.cli.checks import Place, load_app, require_table
from runtime.cli.console import Screen, counted, make_table
from runtime.cli.failures import FAILED
from runtime.cli.options import (
    AppSpec,
    AsJson,
    Limit,
    LimitOptions,
    LogOptions,
    ScanOptions,
    SparkOptions,
    StoreUrl,
    TableName,
    options_of,
)
from runtime.maintenance.check import Checked, check_table

if TYPE_CHECKING:
    from runtime.spark.verification import FirstDifference, VerdictCount, Verification


# `consistent check`: whether all rows of a table can be read, and agree with each other.

Repair = Annotated[
    bool,
    typer.Option(
        "--repair",
        help="Rebuild what is derived from other rows: the index of message ids, counts, markers.",
    ),
]


def check(
    *,
    store: StoreUrl,
    table: TableName,
    repair: Repair = False,
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
        Place(store, table),
        partial(check_table, repair=repair),
        lambda document: found.update(Checked.of(document)),
        step="Checking",
        stopped="Stopped. What was repaired stays so: run the same command again for the rest.",
    )
    screen = Screen(as_json)
    screen.give(found.document())
    screen.show(f"{counted(found.rows, 'row')} of {counted(found.streams, 'stream')} and others were read.")
    for title, faults in (("Repaired", found.repaired), ("Damaged", found.faults)):
        if faults:
            rows = [(each.stream, each.row, each.problem, each.repair) for each in faults[: limit or None]]
            screen.show(make_table(title, ("stream", "row", "what", "can be repaired"), rows))
    if not found.damaged:
        return
    screen.note(f"{counted(found.damaged, 'fault')}. Restore what --repair cannot rebuild from an export.")
    raise typer.Exit(FAILED)


# What a verification found, for people and for machines.

_COLUMNS = ("handler", "type", "revision", "verdict", "deliveries", "streams")
_DIFFERENT = ("handler", "business id", "version", "message", "type", "revision", "what differs")
_ADVICE = {
    Verdict.NONDETERMINISTIC: "A changed rule needs a new revision: keep the old method with its number, and give the "
    "new one @handles(by=..., revision=N).",
    Verdict.REPLAY_FAILED: "A method that handled these messages fails on them now: keep it as the revision that it "
    "was, and add another.",
    Verdict.REVISION_GONE: "Bring these revisions back, until truncation has cut the versions that they made.",
    Verdict.STATE_UNREADABLE: "A changed state needs a new schema version, and an upcaster from each one before.",
    Verdict.REFUSED: "Today's message types no longer take these messages: give new fields defaults.",
    Verdict.STREAM_DAMAGED: "These streams cannot be read, and nothing of them was compared: see `consistent check`.",
}
_REMARKS = {
    Verdict.ID_REUSED: "Messages with the id of another one were not compared: they are dead letters in a batch.",
    Verdict.NOT_KEPT: "Messages whose versions may have been cut were not compared: a batch takes them for too late. "
    "Give what `consistent truncate --export` wrote as --export.",
    Verdict.UNKNOWN: "Messages without a stored version were not compared: a batch would handle them for the first "
    "time, or make them dead letters.",
}


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """The counts of a verification, and the first of its differences."""

    is_clean: bool
    counts: Sequence[VerdictCount]
    differences: Sequence[FirstDifference]

    @classmethod
    def of(cls, found: Verification, limit: int) -> VerifyReport:
        """Take up to `limit` differences of a verification; 0 takes all."""
        differences = [] if found.is_clean else found.first_differences(limit)
        return cls(found.is_clean, found.counts, differences)

    def document(self) -> dict[str, Any]:
        """Return the report for JSON."""
        return {
            "is_clean": self.is_clean,
            "deliveries": self._total(*Verdict),
            "matches": self._total(Verdict.MATCH),
            "different": self._total(*(verdict for verdict in Verdict if verdict.is_difference)),
            "counts": [asdict(count) for count in self.counts],
            "differences": [asdict(each) for each in self.differences],
        }

    def parts(self) -> Iterator[RenderableType]:
        """Give the report for people: counts, examples of what differs, and what to do about it."""
        rows = [
            (each.handler or "(none)", each.type, each.revision, each.verdict, each.deliveries, each.streams)
            for each in self.counts
        ]
        yield make_table("What today's code gives for these deliveries", _COLUMNS, rows)
        yield ""
        if self.differences:
            yield make_table(self._title(), _DIFFERENT, map(_row, self.differences))
            yield ""
        for verdict, sentence in {**_ADVICE, **_REMARKS}.items():
            if any(each.verdict is verdict for each in self.counts):
                yield f"{verdict}: {sentence}"
        yield from self._reasons()
        yield self._conclusion()

    def _title(self) -> str:
        streams = sum(each.streams for each in self.counts if each.verdict.is_difference)
        shown = len(self.differences)
        more = f" ({shown} of {streams:,})" if streams > shown else ""
        return f"The first version of each stream that differs{more}"

    def _reasons(self) -> Iterator[str]:
        """Give the errors of messages that have no version because they are dead letters, each counted."""
        for each in self.counts:
            for error, count in each.reasons:
                yield f"  {count:,} x {error}"

    def _conclusion(self) -> str:
        matches, all_ = self._total(Verdict.MATCH), self._total(*Verdict)
        if self.is_clean:
            return f"No stored version differs: {matches:,} of {counted(all_, 'delivery')} match."
        different = self._total(*(verdict for verdict in Verdict if verdict.is_difference))
        of_all = counted(all_, "delivery")
        return f"{different:,} of {of_all} would no longer give what they gave; {matches:,} match."

    def _total(self, *verdicts: Verdict) -> int:
        return sum(each.deliveries for each in self.counts if each.verdict in verdicts)


def _row(each: FirstDifference) -> tuple[str | int | None, ...]:
    error = f"{each.verdict}: {each.error}"
    return each.handler, each.business_id, each.version, each.message_id, each.type, each.revision, error


SampleOption = Annotated[
    float,
    typer.Option(
        "--sample",
        metavar="SHARE",
        help="Look at a share of the streams only, such as 0.01: always the same ones.",
    ),
]
Seed = Annotated[
    int, typer.Option("--seed", metavar="N", help="Choose other streams for the sample with another number.")
]
Cascade = Annotated[
    bool,
    typer.Option("--cascade", help="Verify the handlers of what the replays publish too, round by round."),
]
Export = Annotated[
    Path | None,
    typer.Option(
        "--export",
        metavar="DIR",
        file_okay=False,
        show_default=False,
        help="Compare with the versions that `consistent truncate --export` has written to this folder, too.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class Extent:
    """How much is verified, and in how many partitions."""

    sample: SampleOption = 1.0
    seed: Seed = 0
    cascade: Cascade = False
    given: Annotated[dict[str, Any], options_of(BatchOptions, "max_rounds", "partitions")]


def verify(
    *,
    app: AppSpec,
    log: LogOptions,
    store: StoreUrl,
    table: TableName,
    extent: Extent,
    limits: LimitOptions,
    export: Export = None,
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
    from runtime.spark.verification import VerifyOptions
    from runtime.spark.verification import verify as compare
    from runtime.spark.worker.connection import check_scope

    options = {
        "sample": extent.sample,
        "seed": extent.seed,
        "cascade": extent.cascade,
        **extent.given,
        **log.named(),
        "limits": limits.limits(),
        "export": None if export is None else str(export),
    }
    VerifyOptions(**options)  # what cannot be is refused before Spark is started
    check_scope(connect(store).scope, spark.place)
    log_bytes = log.check(spark.place)
    require_table(store, table)
    with spark.working("Stopped. Nothing was written.", log_bytes) as (session, progress):
        found = compare(
            session, log.messages, loaded, store=store, table=table, step=progress.step, **options
        )
        report = VerifyReport.of(found, limit)
        progress.done()
        Screen(as_json).put(report)
    if not report.is_clean:
        raise typer.Exit(FAILED)
