"""Distributions built without the network, environments to install into, and programs that find few packages."""

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
from collections.abc import Collection, Iterator
from configparser import ConfigParser
from importlib.metadata import packages_distributions, requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

REPOSITORY = Path(__file__).parents[2]
PROJECT = "consistent-messaging"

_LEFT_OUT = shutil.ignore_patterns(".*", "node_modules", "build", "dist", "*.egg-info", "__pycache__")
_HIDE = """
import sys

class Hides:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in HIDDEN:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

HIDDEN = set(sys.argv.pop().split(","))
sys.meta_path.insert(0, Hides())
"""


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


def setup_cfg() -> ConfigParser:
    config = ConfigParser()
    config.read(REPOSITORY / "setup.cfg")
    return config


def extras() -> list[str]:
    return list(setup_cfg()["options.extras_require"])


def run_with(installed: Collection[str], program: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a program that finds only this project and the packages that these extras bring."""
    brought = {PROJECT, *_closure([required(None), *map(required, installed)])}
    modules = packages_distributions().items()
    hidden = [name for name, packages in modules if brought.isdisjoint(map(canonicalize_name, packages))]
    return subprocess.run(
        [sys.executable, "-c", _HIDE + program, ",".join(hidden)], cwd=folder,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)}, capture_output=True, text=True, check=False,
    )  # fmt: skip


def required(extra: str | None) -> list[Requirement]:
    """Return what an extra requires, or the core if `extra` is None."""
    config = setup_cfg()
    text = config["options"]["install_requires"] if extra is None else config["options.extras_require"][extra]
    return [Requirement(line) for line in text.splitlines() if line.strip()]


def _closure(given: Collection[list[Requirement]]) -> Iterator[str]:
    """Yield the names of packages and of all their dependencies."""
    waiting = [requirement for requirements in given for requirement in requirements]
    seen = set()
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        if str(requirement) in seen:
            continue
        seen.add(str(requirement))
        if name == PROJECT:
            waiting += [each for extra in requirement.extras for each in required(extra)]
            continue
        yield name
        for each in map(Requirement, requires(name) or ()):
            wanted = requirement.extras or {""}
            if each.marker is None or any(each.marker.evaluate({"extra": extra}) for extra in wanted):
                waiting.append(each)
