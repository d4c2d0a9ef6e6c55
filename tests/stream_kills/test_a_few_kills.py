"""A killed stream ends as an undisturbed one; a difference would be found."""

import json

import pytest

from tests.stream_kills.__main__ import main, undisturbed
from tests.stream_kills.world import EACH_ALONE, Driver, Shape, World


@pytest.mark.thorough
@pytest.mark.timeout(540)
@pytest.mark.parametrize("options", [["--kills", "1"], ["--kafka", "--kills", "10"]])
def test_a_stream_that_is_killed_ends_as_an_undisturbed_one(capsys, tmp_path, options):
    assert main([*options, "--seed", "2", "--results", str(tmp_path), "--dry"]) == 0

    assert "Nothing differs." in capsys.readouterr().out


@pytest.mark.thorough
def test_a_stream_is_compared_with_one_that_is_cut_into_the_same_epochs(tmp_path):
    # Given a stream whose first driver died when Spark had chosen a file, and had not noted the epoch yet
    world = World(tmp_path / "killed", Shape(seed=1))
    world.begin()
    chosen = world.checkpoint / "sources" / "0" / "0"
    chosen.parent.mkdir(parents=True)
    file = world.incoming / "0.jsonl"
    modified = int(file.stat().st_mtime * 1000)
    taken = {"path": file.as_uri(), "timestamp": modified, "batchId": 0, "action": "add"}
    chosen.write_text(f"v1\n{json.dumps(taken)}")

    # When it is started again, then the first epoch has two files, and nothing is lost
    complaints = Driver(world, cores=2, partitions=2).end()
    assert not complaints
    cut = world.cut_by_spark()
    assert cut == [[0, 1], *EACH_ALONE[2:]]
    expected, _ = undisturbed(World(tmp_path / "undisturbed", world.shape, cut))
    assert expected.outcomes
    assert not world.look().differences(expected)
