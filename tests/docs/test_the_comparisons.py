"""Both sides of the pages in docs/compare run, and leave the same balances."""

from __future__ import annotations

import re
import shutil
import sysconfig
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, text
from tests.docs.pasting import beside_the_project, blocks, marked, paste, write_files
from tests.packaging.building import Environment

OTHER_SIDES = {
    "drop-duplicates": ("drop_before.py", r"\('ada', 65\) \('bob', 7\)"),
    "transform-with-state": ("state_before.py", r"ada 40\nada 65\nbob 7"),
    "eventsourcing": ("sourcing_before.py", r"ada 65"),
    "dbos": ("dbos_before.py", r"ada 40\nbob 7\nada 65"),
}
"""The program of the other side, and what it prints in its first run."""

RUN_AGAIN_SILENTLY = {"dbos"}
PAGES = sorted(path.stem for path in (ROOT / "docs" / "compare").glob("*.md"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with the handler, and with the payments as a file and as a stream of files."""
    write_files("docs/comparison.md", tmp_path)
    (tmp_path / "incoming").mkdir()
    shutil.copy(tmp_path / "payments.jsonl", tmp_path / "incoming")
    return tmp_path


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a Python with the compared libraries, which the tests do not need otherwise."""
    place = tmp_path_factory.mktemp("peers")
    made = Environment(place)
    made.install("dbos", "eventsourcing")
    (packages,) = place.glob("lib/python*/site-packages")
    (packages / "installed.pth").write_text(f"{ROOT}\n{sysconfig.get_path('purelib')}\n")
    return made.python


def test_each_page_is_short_and_linked():
    assert all(len(text(f"docs/compare/{page}.md").split()) <= 450 for page in PAGES)
    assert sorted(re.findall(r"\(compare/([\w-]+)\.md\)", text("docs/comparison.md"))) == PAGES


def test_a_table_of_ids_by_hand_and_a_processor_send_the_same_receipts(folder):
    write_files("docs/compare/inbox-outbox.md", folder)

    first, second = (paste("python table_before.py", folder, beside_the_project()) for _ in range(2))
    handled = [paste("python table_after.py", folder, beside_the_project()).splitlines() for _ in range(2)]

    assert (len(first.splitlines()), second) == (3, "")
    assert {line.replace('":', '": ').replace(',"', ', "') for line in handled[0]} == set(first.splitlines())
    assert handled[0] == handled[1]


@pytest.mark.thorough
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("page", OTHER_SIDES)
def test_the_other_side_runs_twice_and_counts_each_payment_once(folder, python, page):
    write_files(f"docs/compare/{page}.md", folder)
    program, printed = OTHER_SIDES[page]

    first, second = (paste(f"{python} {program}", folder, beside_the_project()) for _ in range(2))

    assert re.search(printed, first)
    assert bool(re.search(printed, second)) != (page in RUN_AGAIN_SILENTLY)


@pytest.mark.thorough
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("page", [page for page in PAGES if page != "inbox-outbox"])
def test_this_side_leaves_the_same_balances_and_changes_nothing_when_it_is_run_again(folder, page):
    (commands,) = marked(f"docs/compare/{page}.md", "after")

    for _ in range(2):
        told = paste(commands, folder, beside_the_project())

        assert re.search(r"ada +\{\"balance\":65\}", told)
        assert re.search(r"bob +\{\"balance\":7\}", told)


def test_code_that_is_not_run_is_marked_and_the_page_says_so():
    shown = [page for page in PAGES for block in blocks(f"docs/compare/{page}.md") if block.mark == "fragment"]

    assert shown == ["durable-entities"]
    assert "is shown, not run" in text("docs/compare/durable-entities.md")
