"""Policies are set, listed and removed; what is asked for wrongly is refused, and a truncation tells of its lease."""

import json

import pytest

from runtime.clock import system_clock
from runtime.leases import Leases
from tests.unit.cli.stores import on_store

ON_STORE = ["--store", "sqlite:///store.db", "--table", "games"]
GAMES = ["--handler", "ShootingRange"]


@pytest.fixture
def policy(consistent, store):
    """Call a command of `policy`, and return what it said."""

    def call(verb, *options):
        return consistent("policy", verb, *ON_STORE, *options)

    return call


def listed(policy):
    return {
        (each["handler"], each["stream"]): each
        for each in json.loads(policy("list", "--json").out)["policies"]
    }


def test_a_table_has_none_at_first(policy):
    assert policy("list").out == "The table has no policies.\n"
    assert listed(policy) == {}


def test_what_is_set_is_listed(policy):
    options = ["--older-than", "90d", "--keep-last", "1", "--redelivery-window", "12h", "--allow-undated"]
    assert policy("set", *GAMES, *options).code == 0
    assert policy("set", *GAMES, "--stream", "7", "--hold").code == 0

    of_handler, of_stream = listed(policy)["ShootingRange", None], listed(policy)["ShootingRange", "7"]
    assert (of_handler["older_than_seconds"], of_handler["keep_last"]) == (90 * 86400, 1)
    assert (of_handler["redelivery_window_seconds"], of_handler["allow_undated"]) == (43200, True)
    assert (of_handler["hold"], of_stream["hold"], of_stream["keep_last"]) == (False, True, None)
    shown = policy("list").out
    assert "90d" in shown
    assert "12h" in shown
    assert "held" in shown


def test_rules_and_hold_are_set_and_removed_apart(policy):
    policy("set", "--older-than", "30d", "--hold")
    policy("set", "--keep-last", "5")

    assert listed(policy)[None, None]["hold"]
    assert listed(policy)[None, None]["older_than_seconds"] is None

    said = policy("remove")
    assert (said.code, said.out) == (0, "The rules are removed for the table.\nIt is still held.\n")
    assert listed(policy)[None, None]["hold"]
    assert policy("remove", "--hold").out == "The hold is lifted for the table.\n"
    assert listed(policy) == {}


@pytest.mark.parametrize(
    ("verb", "options", "sentence"),
    [
        ("set", [], "--older-than AGE, --keep-last N or both, or --hold"),
        ("set", ["--older-than", "3h"], "Versions younger than 24h are kept"),
        ("set", ["--allow-undated", "--hold"], "--older-than AGE, --keep-last N"),
        ("set", ["--stream", "7", "--hold"], "give --handler too"),
        ("remove", [], "There are no rules for the table"),
        ("remove", [*GAMES, "--stream", "7", "--hold"], "There is no hold for ShootingRange 7"),
    ],
)
def test_what_was_asked_for_wrongly(policy, verb, options, sentence):
    said = policy(verb, *options)

    assert said.code == 2
    assert sentence in said.err
    assert listed(policy) == {}


def test_a_second_truncation_is_refused_before_spark_starts(consistent, store):
    on_store(store, lambda table: Leases(table, system_clock).take("ada on a (process 1)"))

    said = consistent("truncate", *ON_STORE, "--older-than", "7d")

    assert said.code == 1
    assert "This table is being cleaned up by ada on a (process 1) until 20" in said.err
    assert "--take-over" in said.err
