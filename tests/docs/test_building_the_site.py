"""`make docs` builds the site in a clone where nothing is installed, and fails at a link that leads nowhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.pasting import bare_environment, paste
from tests.docs.test_the_site import in_navigation
from tests.packaging.building import copy_tree

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a folder with the files of this project, in which the site was built."""
    tree = copy_tree(tmp_path_factory.mktemp("site"))
    paste("make docs", tree, bare_environment())
    return tree


def test_every_page_is_in_it(clone):
    built = {str(path.relative_to(clone / "site")) for path in (clone / "site").rglob("*.html")}

    pages = {page.replace("README.md", "index.md").replace(".md", ".html") for page in in_navigation()}
    assert pages <= built
    assert built - pages == {"404.html"}


def test_it_asks_no_other_host(clone):
    pages = [path.read_text() for path in (clone / "site").rglob("*.html")]
    loaded = [
        tag for page in pages for tag in re.findall(r"<(?:script|img|link|iframe|source)\b[^>]*>", page)
    ]

    assert any("iframe-worker.js" in tag for tag in loaded)
    assert [tag for tag in loaded if re.search(r"""(?:src|href)=["']?(?:https?:)?//""", tag)] == []
    # What the theme's script loads from elsewhere are drawings, where there are any, and what each browser has
    assert not any('class="mermaid"' in page for page in pages)
    for style in (clone / "site").rglob("*.css"):
        assert re.findall(r"""(?:url\(|@import )["']?(?:https?:)?//[^)]+""", style.read_text()) == []


@pytest.mark.parametrize(
    ("page", "link"),
    [("README.md", "docs/testing.md#nowhere"), ("docs/tla/README.md", "../nowhere.md")],
)
def test_a_link_that_leads_nowhere_fails_it(clone, page, link):
    before = (clone / page).read_text()
    (clone / page).write_text(f"{before}\nSee [there]({link}).\n")

    told = paste("! make docs", clone, bare_environment())

    (clone / page).write_text(before)
    assert "nowhere" in told
