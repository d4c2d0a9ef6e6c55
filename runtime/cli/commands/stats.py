"""`consistent stats`: how much a table holds."""

from __future__ import annotations

import asyncio

from eventstore import Table, connect
from runtime.algorithms.choice import described_algorithm
from runtime.algorithms.counts import HandlerCount, count_handlers
from runtime.algorithms.outbox.tokens import TokenStore
from runtime.batches.ledger import Ledger
from runtime.cli.console import Screen
from runtime.cli.failures import NotPossibleError
from runtime.cli.options import AsJson, StoreUrl, TableName, TokenStoreUrl, TokenTableName
from runtime.cli.places import Named, Place
from runtime.cli.reports.tables import make_table
from runtime.cli.stores import check_table
from runtime.clock import system_clock

_COLUMNS = ("handler", "algorithm", "objects", "messages", "versions kept", "unfinished")


def stats(
    *,
    store: StoreUrl,
    table: TableName,
    token_store: TokenStoreUrl = None,
    token_table: TokenTableName = None,
    as_json: AsJson = False,
) -> None:
    """Count what a table holds: objects, messages processed, what is unfinished, and live tokens.

        consistent stats --store sqlite:///store.db --table games

    Unfinished are messages whose outputs may be unpublished: their batch has not ended, or their worker died (see
    `consistent sweep`). A live token is a message that was sent and not yet processed, or a dead letter. Two requests
    for each 1,000 objects, one for each 1,000 tokens.
    """
    states = Place(store, table)
    tokens_at = Named(token_store, token_table).beside(states)
    check_table(*states)
    check_table(*tokens_at)
    counts, tokens = asyncio.run(_count(states, tokens_at))
    screen = Screen(as_json)
    screen.give({"handlers": [each._asdict() for each in counts], "live_tokens": tokens})
    if not counts and not tokens:
        screen.show(f"The table {table} holds no business objects and no tokens.")
        return
    if counts:
        screen.show(make_table(f"What {table} holds", _COLUMNS, counts))
    screen.show(f"Live tokens: {tokens:,}")


async def _count(states: Place, tokens: Place) -> tuple[list[HandlerCount], int]:
    async with connect(states.store) as store, connect(tokens.store) as other:
        table = await store.table(states.table)
        await _check_tokens(table, described_algorithm("tokens", None if tokens == states else tokens))
        counts = await count_handlers(table)
        return counts, await TokenStore(await other.table(tokens.table)).count()


async def _check_tokens(table: Table, described: str) -> None:
    """Raise `NotPossibleError` when batches kept their tokens elsewhere: none would be counted."""
    found = await Ledger(table, system_clock).algorithm()
    if found is not None and found.name.startswith("tokens") and found.name != described:
        raise NotPossibleError(
            f"The algorithm of batch {found.batch_id} is {found.name}: say with --token-store and --token-table "
            f"where the tokens are."
        )
