"""A virtual environment of its own, into which pip installs."""

from __future__ import annotations

import json
import subprocess
import venv
from pathlib import Path

from tests.packaging.extras import REPOSITORY


class Environment:
    """A virtual environment, with the programs in it."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder, with_pip=True)
        self.python = folder / "bin" / "python"
        self.consistent = folder / "bin" / "consistent"

    def install(self, *what: str, folder: Path | None = None) -> None:
        constraints = str(REPOSITORY / "constraints.txt")
        pip: list[str | Path] = [
            self.python,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-input",
            "-c",
            constraints,
        ]
        self.run(*pip, *what, folder=folder)

    def packages(self) -> set[str]:
        listed = self.run(self.python, "-m", "pip", "list", "--format", "json")
        return {package["name"].replace("_", "-") for package in json.loads(listed)}

    @staticmethod
    def run(*command: str | Path, folder: Path | None = None) -> str:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout
