"""The wheel and the source distribution hold the four typed packages and little else; what names the version agrees."""

import re
import tarfile
from email.message import Message
from email.parser import BytesParser
from pathlib import Path
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement

from runtime.cli import main
from tests.packaging.building import REPOSITORY, extras, setup_cfg

PACKAGES = ("eventstore", "handlers", "runtime", "samples")
VERSION = setup_cfg()["metadata"]["version"]
NAME = f"consistent_messaging-{VERSION}"


def sources() -> set[str]:
    """Return the source files of the packages, as they are in the working tree."""
    found = {path for package in PACKAGES for path in (REPOSITORY / package).rglob("*.py")}
    found |= {
        path for path in (REPOSITORY / "runtime" / "explore").rglob("*.*") if "__pycache__" not in path.parts
    }
    typed = {f"{name}/py.typed" for name in PACKAGES}
    data = {f"runtime/cli/commands/{name}" for name in ("project.txt", "report.html")}
    return {str(path.relative_to(REPOSITORY)) for path in found} | typed | data


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> Message:
    return BytesParser().parsebytes(ZipFile(wheel).read(f"{NAME}.dist-info/METADATA"))


DESCRIBED = {
    f"{NAME}.dist-info/{name}"
    for name in ("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE", "top_level.txt")
}


def test_the_wheel_holds_the_typed_packages_and_is_for_every_platform(wheel):
    assert wheel.name == f"{NAME}-py3-none-any.whl"
    assert set(ZipFile(wheel).namelist()) == sources() | DESCRIBED


def test_the_source_distribution_holds_the_packages_and_what_builds_and_describes_them(sdist):
    with tarfile.open(sdist) as archive:
        files = {member.name.removeprefix(f"{NAME}/") for member in archive.getmembers() if member.isfile()}

    described = {"LICENSE", "PKG-INFO", "README.md", "pyproject.toml", "setup.cfg"}
    assert {name for name in files if ".egg-info/" not in name} == sources() | described


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
    assert core == {"msgpack", "msgspec", "pydantic", "pydantic-core", "zstandard"}
    assert metadata.get_all("Provides-Extra") == extras()


def test_the_command_is_installed(wheel):
    entry_points = ZipFile(wheel).read(f"{NAME}.dist-info/entry_points.txt").decode()

    assert entry_points.split() == ["[console_scripts]", "consistent", "=", "runtime.cli:main"]


def test_the_command_line_the_changelog_and_the_documents_name_its_version(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--version"])

    assert ended.value.code == 0
    assert capsys.readouterr().out == f"consistent-messaging {VERSION}\n"
    sections = re.findall(r"^## (.*)$", (REPOSITORY / "CHANGELOG.md").read_text(), re.MULTILINE)
    newest = next(section for section in sections if section != "[Unreleased]")
    assert re.fullmatch(rf"{re.escape(VERSION)} - \d{{4}}-\d\d-\d\d", newest)
    page = (REPOSITORY / "docs" / "determinism.md").read_text()
    assert re.findall(r"rev: (\S+)", page) == [f"v{VERSION}"]  # of the hook
