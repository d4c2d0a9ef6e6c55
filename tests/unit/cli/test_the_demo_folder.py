"""The demo removes the folder of an earlier demo, and never anything else."""

import pytest

from runtime.cli.commands.demo import make_folder
from runtime.cli.failures import NotPossibleError


def test_the_folder_of_an_earlier_demo_is_made_anew(tmp_path):
    path = tmp_path / "demo-output"
    make_folder(path)
    (path / "log.parquet").write_text("old")

    make_folder(path)

    assert [each.name for each in path.iterdir()] == [".made-by-consistent-demo"]


def test_a_folder_that_no_demo_made_is_left_alone(tmp_path):
    path = tmp_path / "demo-output"
    path.mkdir()
    (path / "thesis.txt").write_text("the only copy")

    with pytest.raises(NotPossibleError, match="was not made by the demo"):
        make_folder(path)

    assert (path / "thesis.txt").read_text() == "the only copy"


def test_a_link_to_the_folder_of_a_demo_is_left_alone(tmp_path):
    make_folder(tmp_path / "elsewhere")
    (tmp_path / "demo-output").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(NotPossibleError, match="was not made by the demo"):
        make_folder(tmp_path / "demo-output")

    assert (tmp_path / "elsewhere" / ".made-by-consistent-demo").exists()


def test_what_is_no_master_is_refused_before_there_is_a_folder(consistent, tmp_path):
    said = consistent("demo", "--master", "lokal")

    assert said.code == 2
    assert "'lokal' is no master of Spark: write local[*]" in said.err
    assert list(tmp_path.iterdir()) == []
