"""What docs/delivery.md shows is run as it stands, and its tables are those of the code."""

from __future__ import annotations

import json
import re
import shlex

import pyarrow.parquet as pq
import pytest

from runtime.algorithms.last_hop import settings
from runtime.delivery import BreakerPolicy, DeliveryPolicy, DeliverySettings, Result
from runtime.delivery.records import SCHEMA
from tests.docs.pages import text
from tests.support.done_batches import make_batch, outcome, output
from tests.unit.cli.conftest import consistent  # noqa: F401 - a fixture

PAGE = text("docs/delivery.md")
(SENDER,) = re.findall(r"<!-- file: post.py -->\n```python\n(.*?)```", PAGE, re.DOTALL)
COMMANDS = re.findall(r"^consistent .*$", PAGE, re.MULTILINE)
(PROGRAM,) = re.findall(r"<!-- run: python -->\n```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def raffle(consistent, tmp_path):  # noqa: F811 - the fixture
    """Give the command line in a folder with what a raffle has published."""
    (tmp_path / "post.py").write_text(SENDER)
    winners = [
        outcome(name, output(f"to-{name}", 1, "Won", json.dumps({"name": name})))
        for name in ("Ada", "Grace", "Zoë")
    ]
    make_batch(f"sqlite:///{tmp_path}/raffle.db", tmp_path / "outcomes", [winners])
    return consistent


def test_the_commands_run(raffle, tmp_path):
    for command in COMMANDS:
        said = raffle(*shlex.split(command)[1:])
        assert said.code == 0, said.err

    assert sorted((tmp_path / "sent.txt").read_text().splitlines()) == [
        "to-Ada: Dear Ada, you have won!",
        "to-Grace: Dear Grace, you have won!",
    ]
    records = pq.read_table(tmp_path / "records").to_pylist()
    assert sorted(each["result"] for each in records) == ["not_sent", "sent", "sent"]


def test_the_program_says_what_it_shows(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    exec(PROGRAM, {})

    (shown,) = re.findall(r"# (\{.*\})", PROGRAM)
    assert capsys.readouterr().out.strip() == shown


def test_its_columns_are_those_of_the_records():
    table = PAGE.partition("| column | |")[2].partition("\n\n")[0]
    listed = [name for cell in re.findall(r"^\| (`.+?) \|", table, re.MULTILINE) for name in cell.split(", ")]

    assert [name.strip("`") for name in listed] == SCHEMA.names


def test_all_results_are_told():
    table = PAGE.partition("| what happened |")[2].partition("\n\n")[0]

    assert all(f"`{result.value}`" in table for result in Result)


def test_its_defaults_are_those_of_the_code():
    policy, breaker, defaults = DeliveryPolicy(), BreakerPolicy(), DeliverySettings()

    assert f"at a time, {policy.concurrency} unless" in PAGE
    assert (policy.first_pause, policy.longest_pause) == (0.5, 60)
    assert (breaker.failures, breaker.first, breaker.longest, breaker.give_up_after) == (5, 1, 60, 600)
    assert f"`{settings.LOCK_LIMIT[0]}`" in PAGE
    assert f"| {int(defaults.lock_limit.total_seconds() * 1000)} |" in PAGE
    assert f"| {int(defaults.default_ttl.total_seconds())} |" in PAGE
