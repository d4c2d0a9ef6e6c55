"""The wheel and the source distribution hold the four typed packages, the start of the command, and little else."""

from __future__ import annotations

import re
import sys
import sysconfig
import tarfile
from email.message import Message
from email.parser import BytesParser
from pathlib import Path
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement

from tests.packaging.building import build_wheel
from tests.packaging.extras import REPOSITORY, extras, setup_cfg

PACKAGES = ("eventstore", "handlers", "runtime", "samples")
VERSION = setup_cfg()["metadata"]["version"]
NAME = f"consistent_messaging-{VERSION}"


def sources() -> set[str]:
    """Return the source files of the packages, as they are in the working tree."""
    found = {path for package in PACKAGES for path in (REPOSITORY / package).rglob("*.py")}
    typed = {f"{name}/py.typed" for name in PACKAGES}
    return {str(path.relative_to(REPOSITORY)) for path in found} | typed


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> Message:
    return BytesParser().parsebytes(ZipFile(wheel).read(f"{NAME}.dist-info/METADATA"))


def parts_in_c() -> set[str]:
    """Return the sources of the parts in C."""
    found = {path for package in PACKAGES for path in (REPOSITORY / package).rglob("*.c")}
    return {str(path.relative_to(REPOSITORY)) for path in found}


DESCRIBED = {
    f"{NAME}.dist-info/{name}"
    for name in ("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE", "top_level.txt")
}


def test_the_wheel_holds_the_typed_packages_and_their_parts_in_c(wheel):
    built = {name.removesuffix(".c") + sysconfig.get_config_var("EXT_SUFFIX") for name in parts_in_c()}

    version = f"cp{sys.version_info.major}{sys.version_info.minor}"
    assert wheel.name.startswith(f"{NAME}-{version}-{version}-")
    assert set(ZipFile(wheel).namelist()) == sources() | built | DESCRIBED


def test_a_wheel_without_them_is_for_all_machines(sdist, tmp_path):
    wheel = build_wheel(sdist, tmp_path, CONSISTENT_MESSAGING_PURE_PYTHON="1")

    assert wheel.name == f"{NAME}-py3-none-any.whl"
    assert set(ZipFile(wheel).namelist()) == sources() | DESCRIBED


def test_a_wheel_is_built_without_a_compiler(sdist, tmp_path):
    wheel = build_wheel(sdist, tmp_path, CC="there-is-no-compiler")

    assert set(ZipFile(wheel).namelist()) == sources() | DESCRIBED


def test_the_source_distribution_holds_the_packages_and_what_builds_and_describes_them(sdist):
    with tarfile.open(sdist) as archive:
        files = {member.name.removeprefix(f"{NAME}/") for member in archive.getmembers() if member.isfile()}

    described = {
        "CHANGELOG.md",
        "LICENSE",
        "MANIFEST.in",
        "PKG-INFO",
        "README.md",
        "pyproject.toml",
        "setup.cfg",
        "setup.py",
    }
    assert {name for name in files if ".egg-info/" not in name} == sources() | parts_in_c() | described


def test_the_metadata_are_complete(metadata):
    assert (metadata["Name"], metadata["Version"]) == ("consistent-messaging", VERSION)
    assert metadata["License-Expression"] == "MIT"
    assert metadata["License-File"] == "LICENSE"
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert {"Typing :: Typed", "Framework :: AsyncIO"} <= set(metadata.get_all("Classifier", []))
    urls = metadata.get_all("Project-URL", [])
    assert urls
    assert all(
        re.fullmatch(r"[\w ]+, https://(exactly-once\.github\.io|github\.com/\S+)", url) for url in urls
    )


def test_what_is_required_without_an_extra_is_little(metadata):
    required = [Requirement(text) for text in metadata.get_all("Requires-Dist", [])]

    core = {each.name for each in required if each.marker is None}
    assert core == {"msgpack", "pydantic", "pydantic-core", "zstandard"}
    assert metadata.get_all("Provides-Extra") == extras()


def test_the_command_is_installed(wheel):
    entry_points = ZipFile(wheel).read(f"{NAME}.dist-info/entry_points.txt").decode()

    assert entry_points.split() == ["[console_scripts]", "consistent", "=", "runtime.cli:main"]
