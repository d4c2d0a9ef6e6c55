"""The leader board of the demo, read from the heads of its streams."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import RenderableType

from eventstore import Table
from runtime.cli.reports.tables import make_table
from runtime.storage.listing import summaries
from runtime.storage.readable_states import decode

HANDLER = "LeaderBoard"
SHOWN = 5


@dataclass(frozen=True, slots=True)
class Score:
    """The hits and misses of one game."""

    game: str
    hits: int
    misses: int


async def best_scores(table: Table) -> list[Score]:
    """Return the games with the most hits. One request for each 1,000 games."""
    scores = []
    async for summary in summaries(table, HANDLER):
        state = decode(summary.head.state or b"{}")
        scores.append(Score(summary.business_id, state["number_of_hits"], state["number_of_misses"]))
    return sorted(scores, key=lambda score: (-score.hits, score.misses, score.game))[:SHOWN]


def table_of_scores(scores: Sequence[Score]) -> RenderableType:
    """Return a row for each game."""
    rows = [(place, score.game, score.hits, score.misses) for place, score in enumerate(scores, 1)]
    return make_table(f"The {len(rows)} games with the most hits", ("", "game", "hits", "misses"), rows)
