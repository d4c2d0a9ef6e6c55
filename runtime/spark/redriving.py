"""A redrive: a batch over letters, which are chosen once and deleted when the batch is published."""

from __future__ import annotations

from functools import partial

from runtime.algorithms.letters.lines import Wanted
from runtime.errors import UsageError
from runtime.spark.folders import absolute_folder
from runtime.spark.redriven import RedrivenLetters
from runtime.spark.rounds import BatchResult, Rounds


def redrive_letters(rounds: Rounds, wanted: Wanted, batch_id: str) -> BatchResult:
    """Handle letters again: those that are wanted now, or with which the batch of this id began.

    Raises `UsageError` when there are none.
    """
    rounds.check_table()
    letters = RedrivenLetters(absolute_folder(rounds.out), batch_id)
    connection = rounds.connection
    if not _are_chosen(rounds, letters):
        connection.run(letters.freeze(connection.table, rounds.app, wanted))
    first = partial(letters.work, rounds.spark, partitions=rounds.partitions)
    try:
        result = rounds.run(batch_id, f"letters in {letters.path}", first, letters.deliveries)
    except UsageError:
        if rounds.find(batch_id) is None:  # it was refused before it stood in the ledger
            letters.remove()
        raise
    connection.run(letters.finish(connection.table))
    return result


def _are_chosen(rounds: Rounds, letters: RedrivenLetters) -> bool:
    """Say whether an earlier attempt chose the letters of a redrive. Raises `UsageError` when they are lost."""
    if letters.are_frozen:
        return True
    record = rounds.find(letters.batch_id)
    if record is not None and not record.is_finished:
        message = (
            f"The letters of batch {letters.batch_id} are no longer in {letters.path}: abandon the batch, and "
            f"redrive with a new one."
        )
        raise UsageError(message)
    return record is not None
