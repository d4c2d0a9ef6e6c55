"""The site has every page, in the order in which a newcomer reads, and links that are those of the site."""

from __future__ import annotations

import re

import pytest

from scripts.reference.pages import PAGES as REFERENCE
from scripts.site_drawings import with_tables
from scripts.site_pages import PLACES, site_links
from tests.docs.pages import PAGES, text

GENERATED = {f"reference/{name}" for name in REFERENCE}
"""What is written for the site alone."""


def in_navigation() -> list[str]:
    navigation = text("mkdocs.yml").partition("\nnav:\n")[2].partition("\n\n")[0]
    return re.findall(r"[\w./-]+\.md$", navigation, re.MULTILINE)


def test_every_page_is_in_its_navigation_once():
    places = [PLACES.get(page, page.removeprefix("docs/")) for page in PAGES]

    assert sorted(in_navigation()) == sorted({*places, *GENERATED})


def test_it_begins_with_what_a_newcomer_reads():
    assert in_navigation()[:4] == ["index.md", "installation.md", "determinism.md", "testing.md"]


@pytest.mark.parametrize(
    ("link", "source", "there"),
    [
        ("docs/testing.md#guard", "README.md", "testing.md#guard"),
        ("docs/tla/README.md", "README.md", "tla/README.md"),
        ("../README.md", "docs/testing.md", "index.md"),
        ("../CHANGELOG.md#unreleased", "docs/installation.md", "changelog.md#unreleased"),
        ("../docs/growth.md", "benchmarks/README.md", "growth.md"),
        ("../operations.md#outcomes", "docs/reference/outcomes.md", "../operations.md#outcomes"),
        ("#letters", "docs/operations.md", "#letters"),
        ("https://docs.delta.io/latest", "README.md", "https://docs.delta.io/latest"),
        ("runtime/nowhere.py", "README.md", "runtime/nowhere.py"),
    ],
)
def test_a_link_of_the_repository_becomes_one_of_the_site(link, source, there):
    assert site_links(f"See [it]({link}).", source) == f"See [it]({there})."


def test_drawings_are_tables():
    drawings = {page: with_tables(text(page)) for page in PAGES if "```mermaid" in text(page)}

    assert drawings.keys() == {"docs/architecture.md", "docs/operations.md"}
    assert not any("mermaid" in page for page in drawings.values())
    for row in (
        "| runtime/dead_letters.py: dead letters found, edited, discarded | runtime/algorithms/ |",
        "| eventstore/port.py: five calls | SQLite · Azure Tables, Azurite · memory |",
    ):
        assert row in drawings["docs/architecture.md"]
    for row in (
        "|  | started | run |",
        "| started | abandoned | batches --abandon ID |",
        "| published |  |  |",
    ):
        assert row in drawings["docs/operations.md"]


def test_of_a_link_to_the_code_the_text_stays():
    assert site_links("See [it](tests/conftest.py).", "SECURITY.md") == "See it."
