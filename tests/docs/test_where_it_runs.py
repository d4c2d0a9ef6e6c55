"""The pages on Azurite, on Spark clusters and on platforms: their commands run as they stand, but for the ports."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.docs.pasting import beside_the_project, marked, on_free_ports, paste, statuses, write_files
from tests.packaging.building import copy_tree
from tests.plugins.azurite import needed_azurite

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(900)]

CLUSTER = "docs/spark-cluster.md"
FIRST = ["duplicate"] * 3 + ["processed"] * 4


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Give a folder with the files that the README shows."""
    made = tmp_path / "raffle"
    made.mkdir()
    write_files("README.md", made)
    return made


def test_the_sample_runs_on_azurite(folder):
    programs = Path(needed_azurite("table")).parent
    (folder / "node_modules").mkdir()
    (folder / "node_modules" / ".bin").symlink_to(programs)
    commands = on_free_ports("".join(marked("docs/azurite.md", "run")), 10102)

    told = paste(commands, folder, beside_the_project())

    assert (folder / "azurite-data").is_dir()
    assert statuses(folder / "outcomes").count("processed") > 800
    assert "ShootingRange" in told
    assert "LeaderBoard" in told


def test_a_driver_program_is_submitted_on_one_machine(folder):
    write_files(CLUSTER, folder)
    (command,) = marked(CLUSTER, "local")

    told = paste(command, folder, beside_the_project())

    assert "Won" in told
    assert statuses(folder / "outcomes") == FIRST


def test_a_standalone_cluster_runs_a_driver_program_and_a_command(folder):
    write_files(CLUSTER, folder)
    (commands,) = marked(CLUSTER, "cluster")
    environment = beside_the_project()
    environment["PATH"] += os.pathsep + str(Path(needed_azurite("table")).parent)

    told = paste(on_free_ports(commands, 7077, 8080, 8081, 10102), folder, environment)

    assert "Won" in told
    assert statuses(folder / "outcomes") == sorted(FIRST + ["duplicate"] * 7)


def test_a_server_of_spark_connect_runs_commands_and_a_program(folder):
    write_files(CLUSTER, folder)
    (commands,) = marked(CLUSTER, "connect")

    told = paste(on_free_ports(commands, 15002), folder, beside_the_project())

    assert statuses(folder / "outcomes") == sorted(FIRST + ["duplicate"] * 7)
    assert re.search(r"duplicate\W+7\b", told)
    assert len(re.findall(r"\| *Raffle *\|", told)) == 4


def test_a_wheel_is_built_for_a_platform(tmp_path):
    (command,) = marked("docs/platforms.md", "run")
    clone = copy_tree(tmp_path)

    paste(command.replace("/path/to/clone", str(clone)), clone.parent, beside_the_project())

    (wheel,) = (clone.parent / "wheels").iterdir()
    assert wheel.name.startswith("consistent_messaging-")
