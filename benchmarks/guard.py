"""What the guard costs: `python -m benchmarks guard` folds the same log with it and without, in turn.

Streams of the ShootingRange sample are processed in memory, store included, by the worker that a batch runs, so the
share of the guard is greater than in a batch, which also reads a log, shuffles and writes. Time is that of the
processor, and the ratio the median of the turns.
"""

from __future__ import annotations

import multiprocessing
import statistics
import time
from itertools import groupby
from typing import Annotated
from uuid import UUID

import typer

from eventstore import connect, drive
from handlers import App
from handlers.guard import guarded
from runtime.algorithms.state_based.algorithm import StateBased
from runtime.clock import system_clock
from runtime.ledger.batch import BatchContext
from runtime.messages.envelope import Envelope
from runtime.messages.outcome import Status
from runtime.messages.parsing import prepare
from runtime.retries import RetryPolicy
from samples.shooting_range import app
from samples.shooting_range.log import Row, generate

PER_STREAM = 50
FOLDS = 5


def fold(app_: App, log: list[Row]) -> float:
    """Process a log that is ordered by streams, and return the seconds of processor time."""
    handler = app_.handlers["ShootingRange"]
    table = drive(connect("memory:").table("games"))
    algorithm = StateBased(table, handler, system_clock, BatchContext("b"), RetryPolicy())
    begun = time.process_time()
    for game, rows in groupby(log, key=game_of):
        deliveries = [
            prepare(handler, game, Envelope(row["message_id"], row["type"], row["body"])) for row in rows
        ]
        outcomes = drive(algorithm.process(game, deliveries))
        if any(outcome.status is not Status.PROCESSED for outcome in outcomes):
            message = "A message was not handled: the measurement stands for nothing."
            raise AssertionError(message)
    return time.process_time() - begun


def game_of(row: Row) -> str:
    """Return the business id of a message of the log."""
    return str(UUID(row["body"][13:49]))


def least(app_: App, log: list[Row]) -> float:
    """Return the least time of a few folds: what else the machine does only adds to it."""
    return min(fold(app_, log) for _ in range(FOLDS))


def main(
    messages: Annotated[int, typer.Option(min=PER_STREAM, help="Messages of the log.")] = 2_000,
    turns: Annotated[int, typer.Option(min=1, help="Turns, each with five folds of each kind.")] = 30,
) -> None:
    """Fold in turn, each kind in a process of its own, and print the ratio."""
    log = sorted(generate(messages // PER_STREAM, messages), key=lambda row: (game_of(row), row["sequence"]))
    processes = multiprocessing.get_context("spawn")
    with processes.Pool(1) as without_guard, processes.Pool(1) as with_guard:
        under_guard = guarded(app)
        ratios = [
            with_guard.apply(least, (under_guard, log)) / without_guard.apply(least, (app, log))
            for _ in range(turns)
        ]
    print(f"with guard / without: {statistics.median(ratios):.3f} (median of {turns} turns)")


if __name__ == "__main__":
    typer.run(main)
