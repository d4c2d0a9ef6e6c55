"""The demo keeps its promises: duplicates change nothing, and give the same outputs.

A twentieth of its games and messages shows that too. `make test-all` runs its full size in a separate process.
"""

import json

import pytest

from runtime.cli.commands import demo
from tests.integration.cli.folder import Folder
from tests.plugins.spark import Workplace


@pytest.mark.parametrize("part", [20, pytest.param(1, marks=pytest.mark.thorough)])
def test_duplicates_change_nothing_and_each_shot_counts_once(
    workplace: Workplace, tmp_path, monkeypatch, part: int
):
    folder: Workplace | Folder = Folder(tmp_path) if part == 1 else workplace
    for name in ("GAMES", "MESSAGES"):
        monkeypatch.setattr(demo, name, getattr(demo, name) // part)

    done = folder.consistent("demo", "--master", "local[2]", "--json")

    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert [path.name for path in folder.path.iterdir()] == ["demo-output"]
    sizes = {"games": 500, "messages": 20_000, "deliveries": 22_000}
    assert told["log"] == {name: size // part for name, size in sizes.items()}
    first = {"duplicate": 2_000, "outputs": 15_000, "processed": 35_000}
    assert told["first"]["counts"] == {name: count // part for name, count in first.items()}
    second = {"duplicate": 37_000, "outputs": 15_000}
    assert told["second"]["counts"] == {name: count // part for name, count in second.items()}

    compared = told["compared"]
    assert all(compared[name] for name in ("only_duplicates", "same_outputs", "same_states"))
    outputs, states = (compared[name] for name in ("outputs", "states"))
    assert (outputs[0], states[0]) == (outputs[1], states[1])
    assert outputs[0]["count"] == 15_000 // part
    assert (states[0]["streams"], states[0]["versions"]) == (1_000 // part, 35_000 // part)

    best, *others = told["leader_board"]
    place = ["--store", told["store"], "--table", told["table"]]
    shown = json.loads(folder.consistent("show", *place, "LeaderBoard", best["game"], "--json").stdout)
    assert shown["state"] == {"number_of_hits": best["hits"], "number_of_misses": best["misses"]}
    assert best["hits"] + best["misses"] == shown["newest_version"]
    assert len(others) == 4
