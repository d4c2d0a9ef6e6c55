"""The demo keeps its promises: duplicates change nothing and give the same, and what is cut comes too late."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.integration.cli.folder import Folder


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = Folder(tmp_path_factory.mktemp("demo"))
    done = folder.consistent("demo", "--master", "local[2]", "--json")
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    game = document["leader_board"][0]["game"]
    shown = folder.consistent(
        "show", "--store", document["store"], "--table", document["table"], "LeaderBoard", game, "--json"
    )
    return {
        **document,
        "shown": json.loads(shown.stdout),
        "made": {path.name for path in folder.path.iterdir()},
    }


def test_it_leaves_one_folder(told):
    assert told["made"] == {"demo-output"}


def test_the_first_run_processes_every_message_once(told):
    assert told["log"] == {"games": 500, "messages": 20_000, "deliveries": 22_000}
    assert told["first"]["counts"] == {"duplicate": 2_000, "outputs": 15_000, "processed": 35_000}


def test_the_second_run_finds_only_duplicates(told):
    assert told["second"]["counts"] == {"duplicate": 37_000, "outputs": 15_000}
    assert told["compared"]["only_duplicates"]


def test_both_runs_publish_the_same_outputs(told):
    first, second = told["compared"]["outputs"]

    assert told["compared"]["same_outputs"]
    assert first == second
    assert first["count"] == 15_000


def test_the_second_run_changes_no_state(told):
    first, second = told["compared"]["states"]

    assert told["compared"]["same_states"]
    assert first == second
    assert (first["streams"], first["versions"]) == (1_000, 35_000)


def test_truncation_cuts_the_first_day(told):
    assert told["next_day"]["counts"]["processed"] == 3_500
    assert (told["truncation"]["cut"], told["truncation"]["versions"]) == (1_000, 35_000)


def test_copies_of_what_was_cut_come_too_late(told):
    assert told["redelivery"]["counts"] == {"outputs": 0, "too_late": 1_000}
    assert told["redelivery"]["same_states"]


def test_the_leader_board_counts_every_shot_once(told):
    best = told["leader_board"][0]

    assert len(told["leader_board"]) == 5
    assert told["shown"]["state"] == {"number_of_hits": best["hits"], "number_of_misses": best["misses"]}
    assert best["hits"] + best["misses"] == told["shown"]["newest_version"]
