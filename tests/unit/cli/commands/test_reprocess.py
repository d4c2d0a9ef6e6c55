"""The report of a reprocessing as a page, and the refusals of a fork."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from eventstore import TableNotFoundError, connect, drive
from handlers.testing import HandlerSpec
from runtime.batch_options import TablePlace
from runtime.cli.commands.reprocess import _page, fork
from runtime.errors import LogError, UsageError
from tests.support.logs import message_id, row, write_lines
from tests.support.reprocessing import Account, Paid, World, bank, histories


def test_the_page_is_self_contained_escaped_and_for_dark_screens_too() -> None:
    rows = [{"handler": "Customer", "field": "<b>", "count": 2, "before": "1 & 2", "after": None}]
    page = _page("games <again>", "2 messages differ.", {"Fields": rows, "Nothing": []})
    assert "<h1>games &lt;again&gt;</h1><p>2 messages differ.</p>" in page
    assert '<td class="number">2</td><td class="before">1 &amp; 2</td><td class="after"></td>' in page
    assert "color-scheme: light dark" in page
    assert "Nothing" not in page
    assert not any(word in page for word in ("http", "src=", "<script", "@import", "url("))


def test_a_fork_is_not_made_before_its_case_and_reads_several_logs(tmp_path: Path) -> None:
    url, case = f"sqlite:///{tmp_path}/store.db", tmp_path / "case.json"
    body: dict[str, Any] = {"account": "a0", "amount": 5}
    store = connect(url)
    World(drive(store.table("first"))).run([(message_id(1), Paid(**body))], bank("same"))
    other, log = (write_lines(tmp_path / f"{at}.jsonl", [row(at, "Paid", body)]) for at in (2, 1))
    given: dict[str, Any] = {"states": TablePlace(url, "first"), "into": "trial", "at": None, "case": case}

    with pytest.raises(LogError, match="is missing"):
        fork("Account", "a0", messages=other, **given)
    with pytest.raises(TableNotFoundError):
        drive(store.table("trial", make=False))
    fork("Account", "a0", messages=f"{other},{log}", **given)

    forked, first = (histories(drive(store.table(name))) for name in ("trial", "first"))
    assert forked == {("Account", "a0"): first["Account", "a0"]}
    found = HandlerSpec.from_export(Account, case)
    found.when().then(state=found.state)
    with pytest.raises(UsageError, match="new table"):
        fork("Account", "a0", messages=log, **given)


def test_a_case_is_found_among_lines_that_are_no_messages_in_compressed_files_and_without_its_source(
    tmp_path: Path,
) -> None:
    body = json.dumps({"account": "a0", "amount": 5, "note": "\u2028"}, ensure_ascii=False)
    lines = [
        "no json",
        "[]",
        '{"type": "Paid"}',
        json.dumps({"message_id": "m1", "body": body}, ensure_ascii=False),
    ]
    (tmp_path / "log.jsonl.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    url, case = f"sqlite:///{tmp_path}/store.db", tmp_path / "case.json"
    World(drive(connect(url).table("first"))).run([("web:m1", Paid(account="a0", amount=5))], bank("same"))

    where: dict[str, Any] = {"states": TablePlace(url, "first"), "into": "trial", "at": None, "case": case}
    fork("Account", "a0", messages=str(tmp_path / "log.jsonl.gz"), **where)

    assert json.loads(case.read_text())["body"]["note"] == "\u2028"


def test_a_case_needs_a_log(tmp_path: Path) -> None:
    place = TablePlace(f"sqlite:///{tmp_path}/store.db", "games")
    with pytest.raises(UsageError, match="used together"):
        fork("LeaderBoard", "7f", states=place, into="trial", at=None, case=tmp_path / "case.json")
