"""A batch over a table with a damaged stream: its deliveries are dead letters, all others are handled."""

from __future__ import annotations

from benchmarks.games import by_game, routed_batches
from eventstore import Operation, drive
from runtime.dead_letters import Selection, find_letters
from runtime.ledger.batch import BatchContext
from runtime.spark.worker.connection import open_table
from runtime.spark.worker.job import FoldJob
from runtime.versions.stream import summaries
from samples.shooting_range import app


def test_deliveries_to_a_damaged_stream_are_dead_letters_and_all_others_are_handled(tmp_path):
    url = f"sqlite:///{tmp_path}/store.db"
    log = list(routed_batches(by_game(range(4), range(3))))
    list(FoldJob(app, url, "games", BatchContext("first")).fold(log))
    table = open_table(url, "games").table
    keys = [each.key for each in drive(_all(summaries(table)))]
    drive(table.transact(keys[0], [Operation.merge("SS-HEAD", {"StateVersions": "many"})]))

    found = [
        row for batch in FoldJob(app, url, "games", BatchContext("b")).fold(log) for row in batch.to_pylist()
    ]

    damaged = [row for row in found if row["reason"] == "stream_damaged"]
    assert len(damaged) == 3
    assert {row["business_id"] for row in damaged} == {keys[0].partition("-")[2]}
    assert all("row SS-HEAD" in row["error"] and "table games" in row["error"] for row in damaged)
    assert {row["status"] for row in found if row not in damaged} == {"duplicate"}
    drive(table.transact(keys[0], [Operation.delete("SS-HEAD")]))
    assert drive(_all(find_letters(table, Selection()))) == []


async def _all(found):
    return [each async for each in found]
