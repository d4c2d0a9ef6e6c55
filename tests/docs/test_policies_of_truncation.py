"""The commands of docs/operations.md on policies are run as they stand."""

from __future__ import annotations

import json
import re
import shlex

import pytest

from tests.docs.pages import text
from tests.plugins.spark import Workplace
from tests.unit.cli.stores import on_store, play

_ON_TABLE = ["--store", "sqlite:///store.db", "--table", "games"]


@pytest.fixture(scope="module")
def place(workplace: Workplace) -> Workplace:
    on_store(f"sqlite:///{workplace.path}/store.db", play)
    return workplace


def commands() -> list[list[str]]:
    section = text("docs/operations.md").partition("### Policies")[2]
    (block, *_) = re.findall(r"<!-- run -->\n```\n(.*?)```", section, re.DOTALL)
    return [shlex.split(line)[1:] for line in block.splitlines()]


@pytest.mark.thorough
def test_each_does_what_the_page_says(place):
    listed = ""
    for command in commands():
        done = place.consistent(*command)
        assert done.returncode == 0, done.stderr
        if command[:2] == ["policy", "list"]:
            listed = done.stdout
        if command[0] == "truncate":
            assert "2 streams by that of the table" in done.stdout

    assert re.search(r"^table +180d +- +- +kept +- +- +20", listed, re.MULTILINE)
    assert re.search(r"^LeaderBoard +30d +1 +- +kept +- +- +20", listed, re.MULTILINE)
    assert re.search(r"^LeaderBoard spring +- +- +- +- +- +held +20", listed, re.MULTILINE)


def test_without_rules_and_policies_there_is_nothing_to_apply(place):
    place.consistent("policy", "remove", *_ON_TABLE)
    place.consistent("policy", "remove", *_ON_TABLE, "--handler", "LeaderBoard")

    done = place.consistent("truncate", *_ON_TABLE)

    assert done.returncode == 2
    assert "the policies of the table are applied, and it has none" in done.stderr


@pytest.mark.thorough
def test_what_is_held_is_not_cut_by_rules_on_the_command_line(place):
    assert place.consistent("policy", "set", *_ON_TABLE, "--hold").returncode == 0

    rules = ["--older-than", "0s", "--allow-young", "--allow-undated"]
    done = place.consistent("truncate", *_ON_TABLE, *rules, "--json", "--report", "report")

    document = json.loads(done.stdout)
    assert done.returncode == 0, done.stderr
    assert (document["streams"], document["cut"], document["held"]) == (3, 0, {"hold": 3})
    assert (document["rows"], document["requests_per_row"]) == (0, None)
    again = place.consistent("truncate", *_ON_TABLE, *rules, "--report", "report")
    assert (again.returncode, "report is there already" in again.stderr) == (2, True)
