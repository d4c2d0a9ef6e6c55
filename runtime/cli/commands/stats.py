"""`consistent stats`: how much a table holds."""

from __future__ import annotations

import asyncio

from eventstore import Table, connect
from runtime.algorithms.choice import described_algorithm
from runtime.algorithms.counts import HandlerCount, count_handlers
from runtime.algorithms.outbox.tokens import TableTokenStore
from runtime.batches.ledger import Ledger
from runtime.cli.console import Screen
from runtime.cli.failures import NotPossibleError
from runtime.cli.options import AsJson, EvidenceStore, EvidenceTable, StoreUrl, TableName
from runtime.cli.stores import check_table
from runtime.cli.tables import make_table
from runtime.clock import system_clock

_COLUMNS = ("handler", "algorithm", "objects", "messages", "versions kept", "unfinished")


def stats(
    *,
    store: StoreUrl,
    table: TableName,
    evidence_store: EvidenceStore = None,
    evidence_table: EvidenceTable = None,
    as_json: AsJson = False,
) -> None:
    """Count what a table holds: objects, messages processed, what is unfinished, and live tokens.

        consistent stats --store sqlite:///store.db --table games

    Unfinished are messages whose outputs may not be out: their batch has not ended, or nobody is at them any more
    (see `consistent sweep`). A live token is a message that was sent and not yet processed, or a dead letter. Two
    requests for each 1,000 objects, one for each 1,000 tokens.
    """
    evidence_store, evidence_table = evidence_store or store, evidence_table or table
    check_table(store, table)
    check_table(evidence_store, evidence_table)
    counts, tokens = asyncio.run(_count((store, table), (evidence_store, evidence_table)))
    screen = Screen(as_json)
    screen.give({"handlers": [each._asdict() for each in counts], "live_tokens": tokens})
    if not counts and not tokens:
        screen.show(f"The table {table} holds no business objects and no tokens.")
        return
    if counts:
        screen.show(make_table(f"What {table} holds", _COLUMNS, counts))
    screen.show(f"Live tokens: {tokens:,}")


async def _count(states: tuple[str, str], evidence: tuple[str, str]) -> tuple[list[HandlerCount], int]:
    async with connect(states[0]) as store, connect(evidence[0]) as other:
        table = await store.table(states[1])
        await _check_evidence(table, None if evidence == states else evidence)
        counts = await count_handlers(table)
        return counts, await TableTokenStore(await other.table(evidence[1])).count()


async def _check_evidence(table: Table, evidence: tuple[str, str] | None) -> None:
    """Raise `NotPossibleError` when batches kept their tokens elsewhere: none would be counted."""
    for record in await Ledger(table, system_clock).batches():
        if record.algorithm.startswith("tokens") and record.algorithm != described_algorithm(
            "tokens", evidence
        ):
            raise NotPossibleError(
                f"The algorithm of batch {record.batch_id} is {record.algorithm}: say with --evidence-store and "
                f"--evidence-table where the tokens are."
            )
