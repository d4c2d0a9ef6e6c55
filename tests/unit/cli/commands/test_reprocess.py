"""The report of a reprocessing as a page, and the refusals of a fork."""

from pathlib import Path

import pytest

from runtime.batch_options import TablePlace
from runtime.cli.commands.reprocess import _page, fork
from runtime.errors import UsageError


def test_the_page_is_self_contained_escaped_and_for_dark_screens_too() -> None:
    rows = [{"handler": "Customer", "field": "<b>", "count": 2, "before": "1 & 2", "after": None}]
    page = _page("games <again>", "2 messages differ.", {"Fields": rows, "Nothing": []})
    assert "<h1>games &lt;again&gt;</h1><p>2 messages differ.</p>" in page
    assert '<td class="number">2</td><td class="before">1 &amp; 2</td><td class="after"></td>' in page
    assert "color-scheme: light dark" in page
    assert "Nothing" not in page
    assert not any(word in page for word in ("http", "src=", "<script", "@import", "url("))


def test_a_case_needs_a_log(tmp_path: Path) -> None:
    place = TablePlace(f"sqlite:///{tmp_path}/store.db", "games")
    with pytest.raises(UsageError, match="used together"):
        fork("LeaderBoard", "7f", states=place, into="trial", at=None, case=tmp_path / "case.json")
