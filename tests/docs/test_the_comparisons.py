"""Both sides of the pages in docs/compare run, and leave the same balances."""

import re
import shutil
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, text
from tests.docs.pasting import beside_the_project, blocks, marked, paste, write_files
from tests.packaging.building import Environment

PAGES = sorted(path.stem for path in (ROOT / "docs" / "compare").glob("*.md"))
OTHER_SIDES = {
    "drop-duplicates": ("drop_before.py", r"\('ada', 65\) \('bob', 7\)", True),
    "transform-with-state": ("state_before.py", r"ada 40\nada 65\nbob 7", True),
    "eventsourcing": ("sourcing_before.py", r"ada 65", True),
    "dbos": ("dbos_before.py", r"ada 40\nbob 7\nada 65", False),
    "inbox-outbox": ("table_before.py", r'{"account": "ada", "balance": 65}', False),
}
"""The program of the other side, what it prints, and whether it prints that again when it is run again."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with the handler, and with the payments as a file and as a stream of files."""
    write_files("docs/comparison.md", tmp_path)
    (tmp_path / "incoming").mkdir()
    shutil.copy(tmp_path / "payments.jsonl", tmp_path / "incoming")
    return tmp_path


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a Python with the compared libraries, which no other test needs."""
    return Environment.beside(tmp_path_factory.mktemp("peers"), "dbos", "eventsourcing")


def test_pages_are_short_and_linked_and_say_which_code_is_not_run():
    assert all(len(text(f"docs/compare/{page}.md").split()) <= 450 for page in PAGES)
    assert sorted(re.findall(r"\(compare/([\w-]+)\.md\)", text("docs/comparison.md"))) == PAGES
    shown = [page for page in PAGES for each in blocks(f"docs/compare/{page}.md") if each.mark == "fragment"]
    assert shown == ["durable-entities"]
    assert "Their code is not run here" in " ".join(text("docs/compare/durable-entities.md").split())


@pytest.mark.thorough
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("page", OTHER_SIDES)
def test_the_other_side_counts_each_payment_once_in_two_runs(folder, python, page):
    write_files(f"docs/compare/{page}.md", folder)
    program, printed, again = OTHER_SIDES[page]

    told = [paste(f"{python} {program}", folder, beside_the_project()) for _ in range(2)]

    assert [bool(re.search(printed, each)) for each in told] == [True, again]


@pytest.mark.thorough
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("page", PAGES)
def test_this_side_has_the_same_balances_after_each_of_two_runs(folder, page):
    write_files(f"docs/compare/{page}.md", folder)
    commands = marked(f"docs/compare/{page}.md", "after") or ["python table_after.py"]

    told = [paste(commands[0], folder, beside_the_project()) for _ in range(2)]

    for each in told:
        assert re.search(r'ada\W.*balance":65\}', each)
        assert re.search(r'bob\W.*balance":7\}', each)
