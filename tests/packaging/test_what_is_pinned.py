"""What the two commands install is pinned, with the hashes of files, in the versions of constraints.txt."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.packaging.extras import REPOSITORY, closure

_PIN = re.compile(r"[a-z0-9-]+==")
_HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")
FILES = {"run": ["azure", "spark"], "test": ["test", "lint"]}


def pins(path: Path) -> dict[str, str]:
    """Return the versions of packages by their names, of those that this Python takes."""
    lines = [line.rstrip(" \\") for line in path.read_text().splitlines() if _PIN.match(line)]
    found = [each for each in map(Requirement, lines) if each.marker is None or each.marker.evaluate()]
    return {each.name: str(each.specifier) for each in found}


def requirements(name: str) -> Path:
    return REPOSITORY / "requirements" / f"{name}.txt"


@pytest.mark.parametrize("name", ["build", *FILES])
def test_versions_are_those_of_the_constraints(name):
    constraints = pins(REPOSITORY / "constraints.txt")

    assert pins(requirements(name)).items() <= constraints.items()


@pytest.mark.parametrize("name", ["build", *FILES])
def test_each_package_has_hashes_and_no_file_names_a_place(name):
    text = requirements(name).read_text()

    for block in re.split(r"\n(?=[a-z])", text)[1:]:
        assert _HASH.search(block), block
    assert "://" not in text


@pytest.mark.parametrize("name", FILES)
def test_all_that_the_extras_bring_is_there(name):
    missing = closure(FILES[name]) - pins(requirements(name)).keys()

    assert not missing, "`make constraints` writes the files anew"


@pytest.fixture
def audit():
    spec = importlib.util.spec_from_file_location("audit", REPOSITORY / "scripts" / "audit.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SOUND = {"name": "a", "version": "1", "vulns": []}
UNKNOWN = {"name": "b", "skip_reason": "Dependency not found on PyPI"}
WEAK = {"name": "c", "version": "2", "vulns": [{"id": "CVE-1", "fix_versions": ["3"]}]}


@pytest.mark.parametrize(
    ("found", "code", "told"),
    [
        ([SOUND], 0, "Nothing is known against any of 1 packages."),
        ([SOUND, WEAK], 1, "c 2: CVE-1, mended in 3"),
        (
            [SOUND, UNKNOWN],
            2,
            "The advisories cannot be reached from here, so nothing is known about 1 of 2 packages",
        ),
    ],
)
def test_an_audit_tells_what_is_known_and_what_could_not_be_asked(audit, capsys, found, code, told):
    assert audit.report(found) == code
    assert told in capsys.readouterr().out
