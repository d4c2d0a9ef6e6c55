"""The demo keeps its promises: duplicates change nothing and give the same.

A twentieth of its games and messages show that too; as it is, and in a process of its own, it is for `make test-all`.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from runtime.cli.commands import demo
from tests.integration.cli.folder import Folder
from tests.plugins.spark import Workplace

SIZES = {demo: ("GAMES", "MESSAGES")}


@pytest.fixture(scope="module", params=[20, pytest.param(1, marks=pytest.mark.thorough)])
def part(request: pytest.FixtureRequest) -> int:
    """Give what its sizes are divided by."""
    return int(request.param)


@pytest.fixture(scope="module")
def told(workplace: Workplace, tmp_path_factory, part: int) -> Iterator[dict[str, Any]]:
    if part == 1:
        yield tell(Folder(tmp_path_factory.mktemp("demo")))
        return
    with pytest.MonkeyPatch.context() as patch:
        for module, names in SIZES.items():
            for name in names:
                patch.setattr(module, name, getattr(module, name) // part)
        yield tell(workplace)


def tell(folder: Workplace | Folder) -> dict[str, Any]:
    """Run the demo, and return what it says and what it leaves."""
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


def test_the_first_run_processes_every_message_once(told, part):
    assert told["log"] == {
        "games": 500 // part,
        "messages": 20_000 // part,
        "deliveries": 22_000 // part,
    }
    assert told["first"]["counts"] == {
        "duplicate": 2_000 // part,
        "outputs": 15_000 // part,
        "processed": 35_000 // part,
    }


def test_the_second_run_finds_only_duplicates(told, part):
    assert told["second"]["counts"] == {"duplicate": 37_000 // part, "outputs": 15_000 // part}
    assert told["compared"]["only_duplicates"]


def test_both_runs_publish_the_same_outputs(told, part):
    first, second = told["compared"]["outputs"]

    assert told["compared"]["same_outputs"]
    assert first == second
    assert first["count"] == 15_000 // part


def test_the_second_run_changes_no_state(told, part):
    first, second = told["compared"]["states"]

    assert told["compared"]["same_states"]
    assert first == second
    assert (first["streams"], first["versions"]) == (1_000 // part, 35_000 // part)


def test_the_leader_board_counts_every_shot_once(told):
    best = told["leader_board"][0]

    assert len(told["leader_board"]) == 5
    assert told["shown"]["state"] == {"number_of_hits": best["hits"], "number_of_misses": best["misses"]}
    assert best["hits"] + best["misses"] == told["shown"]["newest_version"]
