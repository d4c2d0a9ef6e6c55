"""The reference is what the code says now, and all that is public is described in it."""

from __future__ import annotations

import re

import pytest

from scripts.reference import python_page
from scripts.reference.__main__ import FOLDER, PAGES
from scripts.reference.commands_page import commands
from scripts.reference.source import Public, public_names
from tests.docs.pages import anchors


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_what_the_command_writes(name):
    assert (FOLDER / name).read_text() == PAGES[name](), "`make reference` writes the pages anew"


def test_its_index_lists_its_pages():
    listed = re.findall(r"^\| \[\w+\]\((\w+\.md)\)", (FOLDER / "README.md").read_text(), re.MULTILINE)

    assert sorted(listed) == sorted(PAGES) == sorted({path.name for path in FOLDER.iterdir()} - {"README.md"})


def test_every_command_has_its_place():
    names = {name.replace(" ", "-") for name, _, _ in commands()}

    assert {"consistent-run", "consistent-policy-set", "consistent-tokens-issue"} <= names
    assert names <= anchors(FOLDER / "commands.md")


def public() -> list[Public]:
    return [name for module in python_page.MODULES for name in public_names(module)]


def test_every_public_name_is_on_the_page_about_python():
    page = python_page.write()

    assert {"App", "Processor", "run_batch", "check_determinism", "connect"} <= {
        each.name for each in public()
    }
    assert [each.name for each in public() if f"\n### {each.name}\n" not in page] == []


def test_every_public_name_is_described():
    assert [each.name for each in public() if not each.text] == []
    undescribed = {each.name for each in public() for member in each.members if not member.text}
    assert undescribed == {
        "InterceptedTable",
    }  # whose methods are those of Store and Table


def test_a_signature_is_shown_as_it_is_written():
    names = {each.name: each for each in public()}

    assert names["handles"].signature == "def handles(*, by: str, revision: int = 1) -> Mark"
    assert names["App"].signature == "class App(*handlers: type[Handler[Any]], name: str | None = None)"
    assert "max_rounds: int = 100" in names["BatchOptions"].signature
