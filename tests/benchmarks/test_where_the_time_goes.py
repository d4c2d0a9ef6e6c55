"""The stages of a fold: run one after another they do what a worker does."""

from __future__ import annotations

from benchmarks.games import by_game, routed_batches
from benchmarks.stages import PER_STREAM, whole_fold, worker_stages
from eventstore import connect, drive
from runtime.storage.listing import versions


def stored_ids(url: str, game: str) -> list[str]:
    """Return the ids of the messages that made the versions of a game."""
    table = drive(connect(url).table("games"))
    stored = drive(versions(table, "ShootingRange", game))
    assert stored is not None
    return [version.message_id for version in stored]


def test_the_stages_store_what_a_worker_stores(tmp_path):
    batches = list(routed_batches(by_game(range(2), range(PER_STREAM))))
    game = batches[0].column("business_id")[0].as_py()

    stages = worker_stages(batches, tmp_path)
    whole = whole_fold(batches, tmp_path)

    apart, together = (stored_ids(f"sqlite:///{tmp_path}/{name}.db", game) for name in ("stages", "whole"))
    assert len(together) == PER_STREAM
    assert apart == together
    assert all(seconds > 0 for seconds in (*stages.values(), *whole.values()))
