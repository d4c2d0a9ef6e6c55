"""What the README says is pasted into a shell by somebody who has a clone and nothing else: all is installed anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.pasting import bare_environment, marked, paste, statuses, write_files
from tests.packaging.building import copy_tree

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(1800)]

README = "README.md"


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a folder with the files of this project."""
    return copy_tree(tmp_path_factory.mktemp("pasted"))


def test_what_the_demo_leaves_is_looked_at_in_a_fresh_shell(clone):
    told = paste("make demo", clone, bare_environment())
    assert "The leader board" in told

    (looking,) = marked(README, "clone")
    shown = paste(looking, clone, bare_environment())

    assert all(name in shown for name in ("demo-first", "demo-second", "LeaderBoard", "published"))


def test_a_project_of_ones_own_is_made_tested_and_run(clone):
    # Given an environment beside the clone
    (making,) = marked(README, "project")
    paste(making, clone, bare_environment())
    project = clone.parent / "raffle"
    write_files(README, project)

    # When its tests and all commands are run in it
    active = ". .venv/bin/activate\n"
    tested = paste(active + "pytest", project, bare_environment())
    run, cut = marked(README, "run")
    told = paste(active + run, project, bare_environment())

    # Then they do what the text says
    assert "2 passed" in tested
    assert statuses(project / "outcomes") == ["duplicate"] * 3 + ["processed"] * 4
    assert "Won" in told
    kept = paste(active + cut, project, bare_environment())
    assert ["Raffle", "spring", "4"] in [line.split()[:3] for line in kept.splitlines()]
