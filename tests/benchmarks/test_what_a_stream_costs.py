"""The benchmark of streams runs what it says, and counts what a micro-batch asks of the store."""

from __future__ import annotations

import json

import pytest

from benchmarks.streams import ours, plain, whole, write_files
from tests.support.outcomes import heads


@pytest.mark.thorough
def test_all_three_handle_the_same_messages_and_requests_do_not_grow(spark, tmp_path):
    write_files(tmp_path / "incoming", epochs=3, size=20)
    incoming = str(tmp_path / "incoming")

    plain(spark, incoming, tmp_path)
    taken, counted = ours(spark, incoming, tmp_path)
    whole(spark, incoming, tmp_path)

    assert spark.read.parquet(str(tmp_path / "plain")).count() == 60
    assert heads(f"sqlite:///{tmp_path}/stream.db", "games") == heads(
        f"sqlite:///{tmp_path}/batch.db", "games"
    )
    assert len(taken) == 3
    assert len(set(counted.requests[1:])) == 1


def test_of_some_games_at_once_all_end_before_others_begin(tmp_path):
    write_files(tmp_path / "incoming", epochs=2, size=100, at_once=2)

    files = [path.read_text().splitlines() for path in sorted((tmp_path / "incoming").iterdir())]
    games = [{json.loads(json.loads(line)["body"])["game_id"] for line in lines} for lines in files]
    assert [len(lines) for lines in files] == [100, 100]
    assert [len(each) for each in games] == [2, 2]
    assert games[0].isdisjoint(games[1])
