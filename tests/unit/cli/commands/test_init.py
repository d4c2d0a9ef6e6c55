"""A new project works at once: its files, its tests and its CI are those of a user."""

import re
import subprocess
import sys
import tomllib

import pytest


def test_its_tests_pass_and_its_code_is_deterministic(consistent, tmp_path, monkeypatch):
    said = consistent("init", "My-Raffle", "--json")
    folder = tmp_path / "My-Raffle"

    assert all((folder / file).is_file() for file in said.document["files"])
    tested = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=folder,
        check=False,
        capture_output=True,
        text=True,
    )
    assert "2 passed" in tested.stdout, tested.stdout + tested.stderr
    monkeypatch.chdir(folder)
    assert consistent("lint").code == 0
    assert "raffle:app" in consistent("config").out


def test_its_files_are_valid(consistent, tmp_path):
    consistent("init", "raffle")

    project = tomllib.loads((tmp_path / "raffle" / "pyproject.toml").read_text())["project"]
    assert project["name"] == "raffle"
    assert len((tmp_path / "raffle" / "README.md").read_text().splitlines()) <= 10
    workflow = (tmp_path / "raffle" / ".github/workflows/test.yml").read_text()
    ran = re.findall(r"- run: (.*)", workflow)
    assert ran[1:] == ["consistent lint", "pytest", "consistent run raffle.jsonl"]


@pytest.mark.parametrize(
    ("name", "code", "sentence"), [(".", 1, "exists: use a new folder"), ("/--", 2, "letters or digits")]
)
def test_nothing_is_replaced(consistent, tmp_path, name, code, sentence):
    (tmp_path / "consistent.toml").write_text("")

    said = consistent("init", name)

    assert (said.code, sentence in said.err) == (code, True)
    assert not (tmp_path / "raffle.py").exists()
