"""Runners are killed before each of their calls: what is lost and what is there twice is what the target promises."""

from __future__ import annotations

import re

import pytest

from tests.docs.pages import text
from tests.publishing.__main__ import cases, kill, measured
from tests.publishing.cases import AT_LEAST_ONCE, AT_MOST_ONCE, FunctionCase, HttpCase, SqliteCase
from tests.publishing.kills import IDS, Counts, kill_everywhere, make, make_with_copies
from tests.publishing.servers import http_receiver

PAGE = " ".join(text("docs/publishing.md").split())
RESULTS = text("tests/publishing/README.md")
ONE_CHUNK_A_KILL = 2


@pytest.mark.parametrize("make", [make, make_with_copies])
def test_to_sqlite_each_output_is_written_once_also_if_another_batch_has_published_it(tmp_path, make):
    found = kill_everywhere(SqliteCase(tmp_path / "target.db"), tmp_path, 6, make)

    assert found.kills >= 3
    assert found.counts == Counts()


def test_over_http_nothing_is_lost_and_order_is_kept(tmp_path):
    with http_receiver() as receiver:
        found = kill_everywhere(HttpCase(receiver, "k"), tmp_path, every=12)

    assert found.kills >= 2
    assert (found.counts.lost, found.counts.disorder) == (0, 0)


def test_at_most_once_is_never_twice_and_each_loss_is_reported(tmp_path):
    found = kill_everywhere(FunctionCase(tmp_path / "sent", AT_MOST_ONCE), tmp_path, every=7)

    assert found.counts.duplicates == 0
    assert found.counts.lost <= found.refused <= found.kills


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("settings", "in_redis"), [(AT_MOST_ONCE, True), (AT_LEAST_ONCE, True), (AT_LEAST_ONCE, False)]
)
def test_promises_hold_wherever_the_keys_are(tmp_path, redis_server, settings, in_redis):
    case = FunctionCase(tmp_path / "sent", settings, redis_server.url if in_redis else "")

    found = kill_everywhere(case, tmp_path, every=7)

    if settings is AT_MOST_ONCE:
        assert found.counts.duplicates == 0
        assert found.counts.lost <= found.refused
    else:
        assert found.counts.lost == found.refused == 0
        assert found.counts.duplicates <= found.kills * ONE_CHUNK_A_KILL


@pytest.mark.thorough
def test_each_target_keeps_its_promise_wherever_its_runner_is_killed(tmp_path):
    with cases(tmp_path) as found:
        check(measured(found, tmp_path, kill))


@pytest.mark.parametrize(("part", "targets"), [("kills", 7), ("kills on Spark", 2)])
def test_each_row_of_the_page_keeps_what_is_promised(part, targets):
    (table,) = re.findall(rf"<!-- {part} -->(.*?)<!-- end of {part} -->", RESULTS, re.DOTALL)
    check(table, targets)
    for outputs, *harmed in re.findall(
        r"^\| function.*? \| \d+ \| (\d+) \| (\d+) \| (\d+)", table, re.MULTILINE
    ):
        assert f"{max(map(int, harmed))} of {outputs}" in PAGE


def check(table, targets=7):
    rows = re.findall(r"^\| ([\w ,()]+) \| ((?:\d+ \| )+\d+) \|$", table, re.MULTILINE)
    assert len(rows) == targets
    for name, cells in rows:
        kills, outputs, lost, duplicates, _, disorder, in_doubt = map(int, cells.split(" | "))
        assert kills >= 15
        assert outputs == kills * len(IDS)
        assert disorder == 0
        assert lost == 0 or (name == "function, at most once" and lost <= in_doubt)
        assert duplicates == 0 or name == "function, at least once"
