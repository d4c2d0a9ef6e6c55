"""`consistent outcomes`: what batches did and published."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from runtime.cli.console import Screen
from runtime.cli.options import AsJson, Limit
from runtime.cli.places import check_file
from runtime.errors import MissingExtraError
from runtime.messages.outcome import Reason, Status

Out = Annotated[
    str,
    typer.Option(
        "--out",
        metavar="DIR",
        show_default=False,
        help="The folder or url that batches write their outcomes to, or that of one batch in there.",
    ),
]
BatchId = Annotated[str | None, typer.Option("--batch-id", metavar="ID", help="Only outcomes of this batch.")]
WithStatus = Annotated[Status | None, typer.Option("--status", help="Only outcomes with this status.")]
Handler = Annotated[
    str | None, typer.Option("--handler", metavar="NAME", help="Only outcomes of this handler.")
]
WithReason = Annotated[
    Reason | None, typer.Option("--reason", metavar="REASON", help="Only dead letters with this reason.")
]
Id = Annotated[
    str | None,
    typer.Option("--id", metavar="ID", help="Only outcomes of this message, or of this business object."),
]
Export = Annotated[
    Path | None,
    typer.Option(
        "--export",
        metavar="FILE",
        dir_okay=False,
        help="Write all outcomes that are asked for to a file, as JSON lines.",
    ),
]


def outcomes(
    *,
    out: Out,
    batch_id: BatchId = None,
    status: WithStatus = None,
    handler: Handler = None,
    reason: WithReason = None,
    id_: Id = None,
    limit: Limit = 20,
    export: Export = None,
    as_json: AsJson = False,
) -> None:
    r"""Show what batches did with each delivery, and what they published.

        consistent outcomes --out outcomes
        consistent outcomes --out outcomes --status dead_letter \
            --export dead.jsonl

    It reads the Parquet files without Spark, those of a url with the credentials that pyarrow or fsspec finds: counts
    by handler and status, the outputs, each once, and dead letters by reason and error. With a filter the deliveries
    are listed too, each with its outputs. Batches that are held back (--strict) are left out unless named.
    """
    try:
        from runtime.cli.outcome_files import OutcomeFiles, Wanted
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"Reading outcomes needs {error.name}: pip install 'consistent-messaging[spark]'."
        ) from error
    from runtime.cli.reports.outcomes import OutcomesReport, export_rows
    from runtime.cli.reports.tables import counted

    check_file(export)
    wanted = Wanted(status and status.value, handler, reason and reason.value, id_)
    files = OutcomeFiles.open(out, batch_id, wanted)
    screen = Screen(as_json)
    for remark in files.remarks():
        screen.note(remark)
    screen.put(OutcomesReport.of(files, limit))
    if export is not None:
        screen.note(f"Wrote {counted(export_rows(files, export), 'outcome')} to {export}.")
