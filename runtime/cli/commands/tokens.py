"""`consistent tokens`: tokens for messages that come from outside."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from runtime.cli.apps import load_app
from runtime.cli.console import Screen
from runtime.cli.message_logs import check_log
from runtime.cli.options import (
    DEFAULT_MASTER,
    AppSpec,
    AsJson,
    Format,
    LogFile,
    Master,
    Messages,
    Source,
    StoreUrl,
    TableName,
    TokenStoreUrl,
    TokenTableName,
)
from runtime.cli.places import Named, Place, place
from runtime.cli.reports.tables import counted
from runtime.cli.sessions import working

Out = Annotated[
    str,
    typer.Option(
        "--out",
        metavar="LOG",
        show_default=False,
        help="The folder to write the log with tokens to, as Parquet.",
    ),
]


def issue(
    *,
    app: AppSpec,
    messages: Messages,
    store: StoreUrl,
    table: TableName,
    out: Out,
    token_store: TokenStoreUrl = None,
    token_table: TokenTableName = None,
    log_format: Format = None,
    source: Source = None,
    master: Master = DEFAULT_MASTER,
    log_file: LogFile = None,
    as_json: AsJson = False,
) -> None:
    r"""Give each message of a log its token, and write a log whose messages name them.

        consistent tokens issue --app samples.shooting_range:app \
            --messages log.parquet --out log-with-tokens \
            --store sqlite:///store.db --table games

    With `run --algorithm tokens` a message is processed only while its token exists. Issue once for each message
    from outside, before it is processed: a message whose token is issued again after that is processed again. The same
    log may be given again: its messages get the same tokens, and none is created. A log may hold copies of a message,
    but two logs must not hold the same message. One request for each delivery.
    """
    loaded = load_app(app)
    from runtime.spark.issuing import issue_tokens
    from runtime.spark.workers.connection import TablePlace

    tokens = place(Named(token_store, token_table), Place(store, table), master) or TablePlace(store, table)
    check_log(messages, master)
    screen = Screen(as_json)
    stopped = "Stopped. Nothing was sent: run it again."
    with working(master, log_file, when_stopped=stopped) as (spark, progress):
        issued = issue_tokens(
            spark,
            messages,
            loaded,
            tokens,
            out,
            source=source,
            log_format=None if log_format is None else log_format.value,
            step=progress.step,
        )
        progress.done()
        screen.give(asdict(issued))
        if issued.was_issued:
            screen.show(
                "The tokens of this log were issued before: the log names them again, and none is new."
            )
        screen.show(f"Wrote {counted(issued.deliveries, 'delivery')} with tokens to {issued.out}.")
        if issued.rejected:
            screen.show(f"Rows that are no messages: {issued.rejected:,}. {issued.out}.rejected says why.")
