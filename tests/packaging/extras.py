"""The extras of setup.cfg, and programs that find nothing installed but what some of them bring."""

import os
import subprocess
import sys
from collections.abc import Collection, Iterator
from configparser import ConfigParser
from importlib.metadata import packages_distributions, requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

REPOSITORY = Path(__file__).parents[2]
PROJECT = "consistent-messaging"

_HIDE = """
import sys

class Hides:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in HIDDEN:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

HIDDEN = set(sys.argv.pop().split(","))
sys.meta_path.insert(0, Hides())
"""


def setup_cfg() -> ConfigParser:
    config = ConfigParser()
    config.read(REPOSITORY / "setup.cfg")
    return config


def extras() -> list[str]:
    return list(setup_cfg()["options.extras_require"])


def run_with(installed: Collection[str], program: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a program that finds the packages of this project, and of others those that come with these extras."""
    return subprocess.run(
        [sys.executable, "-c", _HIDE + program, ",".join(_hidden(installed))],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=False,
    )


def closure(installed: Collection[str]) -> set[str]:
    """Return the names of the packages that some extras bring."""
    return set(_with_dependencies([_own(None), *map(_own, installed)]))


def _hidden(installed: Collection[str]) -> Iterator[str]:
    """Give the modules that are installed here, and would not be with these extras."""
    brought = {PROJECT, *closure(installed)}
    for module, distributions in packages_distributions().items():
        if brought.isdisjoint(map(canonicalize_name, distributions)):
            yield module


def _own(extra: str | None) -> list[Requirement]:
    config = setup_cfg()
    text = config["options"]["install_requires"] if extra is None else config["options.extras_require"][extra]
    return [Requirement(line) for line in text.splitlines() if line.strip()]


def _with_dependencies(given: Collection[list[Requirement]]) -> Iterator[str]:
    waiting = [requirement for requirements in given for requirement in requirements]
    seen = set()
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        if str(requirement) in seen:
            continue
        seen.add(str(requirement))
        if name == PROJECT:
            waiting += [each for extra in requirement.extras for each in _own(extra)]
            continue
        yield name
        for each in map(Requirement, requires(name) or ()):
            wanted = requirement.extras or {""}
            if each.marker is None or any(each.marker.evaluate({"extra": extra}) for extra in wanted):
                waiting.append(each)
