"""`consistent tokens`: tokens for messages that come from outside."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from runtime.cli.apps import load_app
from runtime.cli.console import Screen
from runtime.cli.option_groups import LimitOptions, LogOptions, SparkOptions
from runtime.cli.options import AppSpec, AsJson, StoreUrl, TableName, TokenStoreUrl, TokenTableName
from runtime.cli.places import Named, Place, place
from runtime.cli.reports.tables import counted

if TYPE_CHECKING:
    from runtime.spark.issuing import Issued

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
    log: LogOptions,
    store: StoreUrl,
    table: TableName,
    out: Out,
    token_store: TokenStoreUrl = None,
    token_table: TokenTableName = None,
    limits: LimitOptions,
    spark: SparkOptions,
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
    from runtime.batch_options import TablePlace
    from runtime.spark.issuing import issue_tokens

    states, named = Place(store, table), Named(token_store, token_table)
    tokens = place(named, states, spark.place) or TablePlace(*states)
    log_bytes = log.check(spark.place)
    screen = Screen(as_json)
    with spark.working("Stopped. Nothing was sent: run it again.", log_bytes) as (session, progress):
        how = {**log.named(), "limits": limits.limits(), "step": progress.step}
        issued = issue_tokens(session, log.messages, loaded, tokens, out, **how)
        progress.done()
        screen.give(asdict(issued))
        screen.show(*_sentences(issued))


def _sentences(issued: Issued) -> Iterator[str]:
    if issued.was_issued:
        yield "The tokens of this log were issued before: the log names them again, and none is new."
    yield f"Wrote {counted(issued.deliveries, 'delivery')} with tokens to {issued.out}."
    if issued.rejected:
        yield f"Rows that are no messages: {issued.rejected:,}. {issued.out}.rejected says why."
