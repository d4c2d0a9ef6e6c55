"""A new project works at once: its tests pass, its code is deterministic, and its files are valid."""

import re
import subprocess
import sys
import tomllib

import pytest


def test_a_new_project_passes_its_tests_and_has_valid_files(consistent, tmp_path, monkeypatch):
    said = consistent("init", "My-Raffle", "--json")
    folder = tmp_path / "My-Raffle"

    assert all((folder / file).is_file() for file in said.document["files"])
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    assert project["name"] == "my-raffle"
    assert len((folder / "README.md").read_text().splitlines()) <= 10
    ran = re.findall(r"- run: (.*)", (folder / ".github/workflows/test.yml").read_text())
    assert ran[1:] == ["consistent lint", "pytest", "consistent run raffle.jsonl"]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    tested = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)
    assert "2 passed" in tested.stdout, tested.stdout + tested.stderr
    monkeypatch.chdir(folder)
    assert consistent("lint").code == 0
    assert "raffle:app" in consistent("config").out


@pytest.mark.parametrize(
    ("name", "code", "sentence"),
    [
        (".", 1, "exists: use a new folder"),
        ("consistent.toml", 1, "is a file: use a new folder"),
        ("/--", 2, "letters or digits"),
        (" ", 2, "needs a name"),
        ("/proc/raffle", 1, "cannot be written"),
    ],
)
def test_nothing_is_overwritten(consistent, tmp_path, name, code, sentence):
    (tmp_path / "consistent.toml").write_text("")

    said = consistent("init", name)

    assert (said.code, sentence in said.err) == (code, True), said.err
    assert not (tmp_path / "raffle.py").exists()
