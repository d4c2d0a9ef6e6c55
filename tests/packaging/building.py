"""Building the distributions, away from the working tree and without the network; and environments to install into."""

import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
from pathlib import Path

from tests.packaging.extras import REPOSITORY

_LEFT_OUT = shutil.ignore_patterns(".*", "node_modules", "build", "dist", "*.egg-info", "__pycache__")


def copy_tree(folder: Path) -> Path:
    """Copy the working tree, without what was installed and built in it."""
    return Path(shutil.copytree(REPOSITORY, folder / "tree", ignore=_LEFT_OUT))


def unpacked(sdist: Path, folder: Path) -> Path:
    with tarfile.open(sdist) as archive:
        if hasattr(tarfile, "data_filter"):  # Python 3.11.4 and newer
            archive.extraction_filter = tarfile.data_filter
        archive.extractall(folder)
    return folder / sdist.name.removesuffix(".tar.gz")


def build(what: str, tree: Path) -> Path:
    """Build the `sdist` or `wheel` of a tree by its back-end, as pip does without build isolation."""
    out = tree.with_name(what)
    program = f"from setuptools import build_meta; build_meta.build_{what}({str(out)!r})"
    Environment.run(sys.executable, "-c", program, folder=tree)
    (built,) = out.iterdir()
    return built


class Environment:
    """A virtual environment, with the programs in it."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder, with_pip=True)
        self.python = folder / "bin" / "python"
        self.consistent = folder / "bin" / "consistent"

    def install(self, *what: str, folder: Path | None = None) -> None:
        options = ["--quiet", "--no-input", "-c", str(REPOSITORY / "constraints.txt")]
        self.run(self.python, "-m", "pip", "install", *options, *what, folder=folder)

    def packages(self) -> set[str]:
        listed = self.run(self.python, "-m", "pip", "list", "--format", "freeze")
        return {line.partition("==")[0].replace("_", "-") for line in listed.splitlines()}

    @classmethod
    def beside(cls, folder: Path, *packages: str) -> Path:
        """Return a Python with these packages, which also finds what is installed here."""
        made = cls(folder)
        made.install(*packages)
        (installed,) = folder.glob("lib/python*/site-packages")
        (installed / "here.pth").write_text(f"{REPOSITORY}\n{sysconfig.get_path('purelib')}\n")
        return made.python

    @staticmethod
    def run(*command: str | Path, folder: Path | None = None) -> str:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout
