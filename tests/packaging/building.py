"""Building the distributions, away from the working tree and without the network; and environments to install into."""

import json
import shutil
import subprocess
import sys
import tarfile
import venv
from pathlib import Path

from tests.packaging.extras import REPOSITORY

_LEFT_OUT = shutil.ignore_patterns(".*", "node_modules", "build", "dist", "*.egg-info", "__pycache__")


def copy_tree(folder: Path) -> Path:
    """Copy the working tree, without what was installed and built in it."""
    return Path(shutil.copytree(REPOSITORY, folder / "tree", ignore=_LEFT_OUT))


def build_sdist(tree: Path) -> Path:
    """Build the source distribution of a tree, with the setuptools that is installed here."""
    return _build("sdist", tree)


def build_wheel(sdist: Path, folder: Path) -> Path:
    """Build the wheel from the source distribution."""
    with tarfile.open(sdist) as archive:
        if hasattr(tarfile, "data_filter"):  # Python 3.11.4 and newer
            archive.extraction_filter = tarfile.data_filter
        archive.extractall(folder)
    return _build("wheel", folder / sdist.name.removesuffix(".tar.gz"))


def _build(what: str, tree: Path) -> Path:
    """Call the build back-end as pip does without build isolation."""
    out = tree.with_name(what)
    program = f"from setuptools import build_meta; build_meta.build_{what}({str(out)!r})"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tree,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = out.iterdir()
    return built


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
