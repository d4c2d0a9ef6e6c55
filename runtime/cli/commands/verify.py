"""`consistent verify`: tells which stored versions today's handlers would break."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from eventstore import connect
from runtime.batch_options import BatchOptions
from runtime.cli.apps import load_app
from runtime.cli.console import Screen
from runtime.cli.declared import options_of
from runtime.cli.failures import FAILED
from runtime.cli.option_groups import LimitOptions, LogOptions, SparkOptions
from runtime.cli.options import AppSpec, AsJson, Limit, StoreUrl, TableName
from runtime.cli.reports.verification import VerifyReport
from runtime.cli.stores import check_table

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
    from runtime.spark.workers.connection import check_scope

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
    check_table(store, table)
    with spark.working("Stopped. Nothing was written.", log_bytes) as (session, progress):
        found = compare(
            session, log.messages, loaded, store=store, table=table, step=progress.step, **options
        )
        report = VerifyReport.of(found, limit)
        progress.done()
        Screen(as_json).put(report)
    if not report.is_clean:
        raise typer.Exit(FAILED)
