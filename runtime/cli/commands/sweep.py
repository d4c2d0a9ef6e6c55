"""`consistent sweep`: publish outputs whose worker died."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

import typer

from runtime.cli.apps import load_app
from runtime.cli.batch_command import BatchChoices, BatchCommand
from runtime.cli.console import Screen
from runtime.cli.durations import parse_duration
from runtime.cli.options import AppSpec, AsJson, WithOutbox
from runtime.cli.stores import check_table

OlderThan = Annotated[
    int,
    typer.Option(
        "--older-than",
        parser=parse_duration,
        metavar="AGE",
        help="Leave out single messages that were handled less long ago: they may still be in progress.",
    ),
]


def sweep(
    *,
    app: AppSpec,
    algorithm: WithOutbox,
    batch: BatchChoices,
    older_than: OlderThan = "1h",  # type: ignore[assignment] # parsed like what is typed
    as_json: AsJson = False,
) -> None:
    r"""Publish outputs whose worker died and whose message will not be redelivered.

        consistent sweep --app samples.shooting_range:app --algorithm outbox \
            --cascade --out outcomes --store sqlite:///store.db --table games

    These are outputs of single messages and of abandoned batches that are still in the outboxes. A batch that has not
    ended publishes its own outputs when it is run again with its id. A sweep is a batch too: its outcomes are
    duplicates with the outputs that were left. One request for each 1,000 entities, and three for each with something
    left.
    """
    loaded = load_app(app)
    options = batch.options(algorithm.value)
    check_table(*batch.states)
    screen = Screen(as_json)
    command = BatchCommand.announced(loaded, batch, options, screen)
    age = timedelta(microseconds=older_than)
    with command.carried_out(
        "Looking for what is unfinished", lambda new, id_: new.sweep(age, id_)
    ) as report:
        if report.counts:
            screen.put(report)
        else:
            screen.give(report.document())
            screen.show("Nothing was left unfinished.")
