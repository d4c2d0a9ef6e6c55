"""The page on installation names the extras that there are, and what each adds."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.packaging.extras import PROJECT, extras, setup_cfg

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "installation.md").read_text()
ROW = re.compile(r"^\| .* \| `consistent-messaging\[(\w+)\]` \| (.*) \|$", re.MULTILINE)
PAGES = ["README.md", *(str(path.relative_to(ROOT)) for path in ROOT.glob("docs/*.md"))]


@pytest.mark.parametrize("page", PAGES)
def test_each_extra_that_a_page_names_exists(page):
    named = re.findall(rf"{PROJECT}\[([\w,]+)\]", (ROOT / page).read_text())

    assert {extra for names in named for extra in names.split(",")} <= set(extras())


@pytest.mark.parametrize(("extra", "brings"), ROW.findall(PAGE))
def test_what_an_extra_adds_is_told(extra, brings):
    lines = setup_cfg()["options.extras_require"][extra].split("\n")
    required = [Requirement(line) for line in lines if line]
    names = {each.name for each in required} - {PROJECT, "azure-core"}  # which azure-data-tables brings
    included = {name for each in required if each.name == PROJECT for name in each.extras}

    told = brings.lower()
    assert all(name in told for name in names)
    assert all(f"`{name}`" in told for name in included)


def test_the_core_is_told():
    core = {Requirement(line).name for line in setup_cfg()["options"]["install_requires"].split("\n") if line}

    assert core == {"pydantic", "pydantic-core", "msgpack", "msgspec", "zstandard"}
    assert "installs pydantic, msgpack, msgspec and zstandard" in " ".join(PAGE.split())


def test_the_project_file_that_it_shows_can_be_read_and_allows_this_version():
    (shown,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)

    (dependency,) = tomllib.loads(shown)["project"]["dependencies"]
    assert Requirement(dependency).specifier.contains(setup_cfg()["metadata"]["version"])


def test_each_extra_has_its_row():
    assert {extra for extra, _ in ROW.findall(PAGE)} == set(extras())
