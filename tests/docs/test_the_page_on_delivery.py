"""The tables of docs/delivery.md are those of the code."""

from __future__ import annotations

import re

from runtime.algorithms.last_hop import settings
from runtime.delivery import BreakerPolicy, DeliveryPolicy, DeliverySettings, Result
from runtime.delivery.records import SCHEMA
from tests.docs.pages import text

PAGE = text("docs/delivery.md")


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
