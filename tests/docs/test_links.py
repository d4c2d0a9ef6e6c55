"""Links of the documentation lead somewhere, and every page is reached from the README."""

from __future__ import annotations

import re

import pytest

from tests.docs.pages import PAGES, ROOT, anchors, links, text


@pytest.mark.parametrize("page", PAGES)
def test_its_links_lead_somewhere(page):
    broken = []
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = ((ROOT / page).parent / path) if path else ROOT / page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)

    assert not broken


def test_every_page_is_reached_from_the_readme():
    reached, waiting = set(), ["README.md"]
    while waiting:
        page = waiting.pop()
        reached.add(page)
        for link in links(page):
            target = ((ROOT / page).parent / link.partition("#")[0]).resolve()
            name = str(target.relative_to(ROOT))
            if name in PAGES and name not in reached:
                waiting.append(name)

    assert reached == set(PAGES)


def test_the_decisions_are_listed_by_their_titles():
    listed = re.findall(r"^(\d+)\. \[(.+)\]\((.+)\)$", text("docs/decisions/README.md"), re.MULTILINE)
    files = sorted(path.name for path in (ROOT / "docs" / "decisions").glob("0*.md"))

    assert [file for _, _, file in listed] == files
    for number, title, file in listed:
        assert text(f"docs/decisions/{file}").startswith(f"# {number}. {title}\n")
