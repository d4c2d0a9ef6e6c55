"""Mistakes that are planted, to show that the campaign finds such ones: each spoils what happens after a kill."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from handlers import Published
from runtime.algorithms.outbox.algorithm import OutboxAlgorithm
from runtime.algorithms.state_based.decide import Decider, Known
from runtime.algorithms.state_based.transaction import Transaction
from runtime.messages.envelope import id_key
from runtime.messages.outcome import Outcome, Status
from runtime.spark.commit import BatchFolders

Plant = Callable[[], Any]

_conclude, _process = Decider._conclude, OutboxAlgorithm.process


def _replay_without_outputs(
    decider: Decider, known: Known, published: Sequence[Published], transaction: Transaction
) -> None:
    _conclude(decider, known, published, transaction)
    transaction.outcomes.published[-1] = ()


async def _finish_at_once(batch: OutboxAlgorithm, business_id: str, *given: Any) -> list[Outcome]:
    outcomes = await _process(batch, business_id, *given)
    known = [id_key(each.envelope.message_id) for each in outcomes if each.status is Status.PROCESSED]
    await batch.finish(business_id, known)
    return outcomes


def _nothing(_: BatchFolders) -> None: ...


MISTAKES: Mapping[str, Plant] = {
    "a replay gives no outputs": lambda: patch.object(Decider, "_conclude", _replay_without_outputs),
    "the first pass finishes messages": lambda: patch.object(OutboxAlgorithm, "process", _finish_at_once),
    "attempts are not swept up": lambda: patch.object(BatchFolders, "remove_staging", _nothing),
}


@contextmanager
def planted(names: Sequence[str]) -> Iterator[None]:
    """Plant mistakes for the block, by their names."""
    if not names:
        yield
        return
    with MISTAKES[names[0]](), planted(names[1:]):
        yield
