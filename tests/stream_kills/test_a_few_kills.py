"""A stream of which a few processes are killed ends as one that nobody disturbed; and what differs would be seen."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.faults.compared import Found
from tests.stream_kills.__main__ import main
from tests.stream_kills.world import Shape, World


@pytest.mark.thorough
def test_a_stream_that_is_killed_ends_as_one_that_is_not(capsys, tmp_path):
    assert main(["--kills", "1", "--seed", "2", "--results", str(tmp_path), "--dry"]) == 0

    assert "Nothing differs." in capsys.readouterr().out


def test_an_outcome_that_is_lost_is_seen(tmp_path):
    world = World(tmp_path, Shape(seed=1))
    world.begin()
    world.out.mkdir(parents=True)
    found = world.look()

    lost = replace(found, outcomes=["('round=0', {})"])
    assert found.differences(lost) == ["outcome that is not there: ('round=0', {})"]
    assert isinstance(found, Found)
    assert not found.differences(found)


def test_the_last_commit_is_forgotten(tmp_path):
    world = World(tmp_path, Shape(seed=1))
    assert not world.forget_the_last_commit()
    commits = world.checkpoint / "commits"
    commits.mkdir(parents=True)
    for epoch in range(11):
        (commits / str(epoch)).touch()

    assert world.forget_the_last_commit()

    assert not (commits / "10").exists()
    assert (commits / "9").exists()
