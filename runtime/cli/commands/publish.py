"""`consistent publish`: send the outputs of a batch to a target outside."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from eventstore import Table
from runtime.cli.checks import Place, on_table, require_table
from runtime.cli.console import Screen
from runtime.cli.options import AsJson, LogFile, Remote, StoreUrl, TableName
from runtime.cli.publishing import (
    OnSpark,
    PublishingReport,
    RedriveReport,
    Sending,
    To,
    find_target,
    publish_on,
    work_here,
)
from runtime.cli.sessions import place_of_work, working
from runtime.clock import system_clock
from runtime.errors import UsageError
from runtime.ledger.ledger import Ledger
from runtime.publishing.last_hop import unended

if TYPE_CHECKING:
    from runtime.publishing.runner import Published

BatchId = Annotated[
    str, typer.Option("--batch", metavar="ID", show_default=False, help="The batch; it must have ended.")
]
Out = Annotated[
    str | None,
    typer.Option(
        "--out",
        metavar="DIR",
        show_default=False,
        help="Where its outcomes are, if not where the batch wrote them.",
    ),
]

Letters = Annotated[
    bool,
    typer.Option(
        "--letters",
        help="List what the target has refused for good, and keys of a MODULE:FUNCTION that say no end; send nothing.",
    ),
]
Redrive = Annotated[
    bool,
    typer.Option(
        "--redrive",
        help="Send again what the target has refused for good, once the cause is mended, and nothing else.",
    ),
]

_STOPPED = "Stopped. What was sent stays sent, and the same command goes on with the rest."


def publish(
    *,
    store: StoreUrl,
    table: TableName,
    batch: BatchId,
    out: Out = None,
    to: To,
    sending: Sending,
    master: OnSpark = None,
    remote: Remote = None,
    log_file: LogFile = None,
    letters: Letters = False,
    redrive: Redrive = False,
    as_json: AsJson = False,
) -> None:
    r"""Send the outputs of a batch to a target outside, as often as the target can promise.

        consistent publish --batch ID --to sqlite:///published.db \
            --map Hit=hits --store sqlite:///store.db --table games

    To SQL and Kafka exactly once: a slice of the outputs is one transaction, with a marker. Over HTTP once at receivers
    that honour the Idempotency-Key, which is the id of the output. A MODULE:FUNCTION, at most or at least once, by a
    key for each customer and message. Outputs of a business object are sent in order.

    Stopped or killed at any moment, the same command goes on with what is not sent; several at once share the work.
    What a receiver refuses for good is a dead letter with its reason, and costs the others nothing: --letters lists
    these, --redrive sends them again. Reads the outcomes once; with --master or --remote they are read and sent by all
    workers of Spark, in place of this process.
    """
    states, screen = Place(store, table), Screen(as_json)
    place = place_of_work(master, remote)
    if letters + redrive + (place is not None) > 1:
        raise UsageError(
            "--letters, --redrive and publishing on Spark are done one at a time: name one of them."
        )
    found = find_target(to, batch, states, sending)
    require_table(*states)

    from runtime.publishing.runner import letters as list_letters
    from runtime.publishing.runner import publish as publish_batch
    from runtime.publishing.runner import redrive as redrive_letters

    if letters:

        async def listing(opened: Table) -> Published:
            record = await Ledger(opened, system_clock).get(batch)
            return await list_letters(opened, record, found.target, found.options.types)

        of_target = found.of_target
        left = asyncio.run(unended(of_target.keys, of_target.keys_table)) if of_target.send else []
        screen.put(RedriveReport(batch, on_table(*states, listing), left))
    elif redrive:
        doing = f"Sending again what was refused of batch {batch} by"
        screen.put(RedriveReport(batch, work_here(found, doing, out, redrive_letters)))
    elif place is None:
        published = work_here(found, f"Publishing batch {batch} to", out, publish_batch)
        screen.put(PublishingReport(batch, published))
    else:
        with working(place, log_file, when_stopped=_STOPPED) as (spark, progress):
            published = publish_on(found, spark, out, progress)
        screen.put(PublishingReport(batch, published))
