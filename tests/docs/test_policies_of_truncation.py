"""Policies and holds count as docs/policies.md says."""

import json

import pytest

from tests.plugins.spark import Workplace
from tests.unit.cli.stores import on_store, play

_ON_TABLE = ["--store", "sqlite:///store.db", "--table", "games"]


@pytest.fixture(scope="module")
def place(workplace: Workplace) -> Workplace:
    on_store(f"sqlite:///{workplace.path}/store.db", play)
    return workplace


@pytest.mark.thorough
def test_what_is_held_is_not_cut_by_rules_on_the_command_line(place):
    assert place.consistent("truncate", "--policy", "set", *_ON_TABLE, "--hold").returncode == 0

    rules = ["--older-than", "0s", "--allow-young", "--allow-undated"]
    done = place.consistent("truncate", *_ON_TABLE, *rules, "--yes", "--json", "--report", "report")

    document = json.loads(done.stdout)
    assert done.returncode == 0, done.stderr
    assert (document["streams"], document["cut"], document["held"]) == (3, 0, {"hold": 3})
    assert (document["rows"], document["requests_per_row"]) == (0, None)
    again = place.consistent("truncate", *_ON_TABLE, *rules, "--report", "report")
    assert (again.returncode, "report exists" in again.stderr) == (2, True)
