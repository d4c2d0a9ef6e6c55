"""Policies: kept in rows, the most specific rules count, and a hold counts whatever stands beside it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventstore import InterceptedTable, drive
from runtime.algorithms.state_based.truncation import RetentionRules
from runtime.errors import UsageError
from runtime.maintenance.policies import PARTITION, Decision, Policies, PolicyReader, Scope
from tests.unit.runtime.accidents import disturbed
from tests.unit.runtime.patience import PATIENCE
from tests.unit.runtime.tables import memory_table, rows
from tests.unit.runtime.worker import DAY, NOW, ToldClock

TABLE, GAMES, ONE = Scope(), Scope("Game"), Scope("Game", "7")
MONTH, WEEK = RetentionRules(older_than=30 * DAY), RetentionRules(older_than=7 * DAY, keep_last=3)

scopes = st.builds(
    Scope,
    st.sampled_from(["A", "B"]),
    st.sampled_from(["", "-", "a", "a/b", "ä", "a~b", "~", "!", "0", "日"]),
)
changes = st.lists(
    st.tuples(
        st.one_of(scopes, st.builds(Scope, st.sampled_from(["A", "B"])), st.just(TABLE)),
        st.sampled_from(["set_rules", "hold", "remove_rules", "lift_hold"]),
        st.integers(1, 400),
    ),
    max_size=12,
)


@pytest.fixture
def policies(table):
    return Policies(table, ToldClock(), PATIENCE)


def decide(table, *keys: str) -> list[Decision]:
    return drive(PolicyReader(table).decide(list(keys)))


def deciding(table, key: str) -> tuple[RetentionRules | None, bool]:
    (decision,) = decide(table, key)
    return (decision.rules.rules if decision.rules else None), decision.is_held


def test_rules_and_a_hold_are_replaced_and_removed_apart_and_the_row_with_the_last(table, policies):
    drive(policies.set_rules(ONE, MONTH))
    drive(policies.set_rules(ONE, WEEK))
    drive(policies.change(ONE, hold=True))
    (policy,) = drive(policies.all())
    assert (policy.scope, policy.rules, policy.hold, policy.set_at) == (ONE, WEEK, True, NOW)
    assert {key[0] for key in rows(table)} == {PARTITION}

    assert drive(policies.change(ONE, rules=None)).hold
    assert deciding(table, "Game-7") == (None, True)
    drive(policies.change(ONE, hold=False))
    assert rows(table) == {}


@pytest.mark.parametrize("rules", [RetentionRules(), RetentionRules(older_than=DAY - 1)])
def test_rules_that_make_no_sense_are_refused(table, policies, rules):
    with pytest.raises(UsageError):
        drive(policies.set_rules(TABLE, rules))
    assert rows(table) == {}


def test_whether_there_are_rules_is_asked_of_rules_alone(table, policies):
    assert not drive(policies.has_rules())
    drive(policies.change(ONE, hold=True))
    assert not drive(policies.has_rules())
    drive(policies.set_rules(Scope("Other", "1"), WEEK))
    assert drive(policies.has_rules())


@given(changes, st.lists(scopes, unique=True, max_size=8))
def test_many_streams_are_decided_as_each_alone_and_as_the_rows_say(made, streams):
    table = memory_table()
    policies = Policies(table, ToldClock(), PATIENCE)
    rules: dict[Scope, RetentionRules] = {}
    held: set[Scope] = set()
    for scope, verb, days in made:
        if verb == "set_rules":
            rules[scope] = RetentionRules(older_than=days * DAY)
            drive(policies.set_rules(scope, rules[scope]))
        elif verb == "remove_rules":
            rules.pop(scope, None)
            drive(policies.change(scope, rules=None))
        else:
            (held.add if verb == "hold" else held.discard)(scope)
            drive(policies.change(scope, hold=verb == "hold"))

    keys = [scope.row_key for scope in streams]
    decisions = decide(table, *keys)

    for scope, key, decision in zip(streams, keys, decisions, strict=True):
        above = [scope, Scope(scope.handler), TABLE]
        expected = next((rules[each] for each in above if each in rules), None)
        assert (decision.rules.rules if decision.rules else None) == expected
        assert decision.is_held == any(each in held for each in above)
        assert [decision] == decide(table, key)
    assert {policy.scope for policy in drive(policies.all())} == {*rules, *held}


def test_many_streams_near_each_other_take_two_requests_and_later_ones_one(table, policies):
    for number in range(100):
        drive(policies.change(Scope("Game", f"{number:03}"), hold=True))
    watched = InterceptedTable(table)
    reader = PolicyReader(watched)

    held = drive(reader.decide([f"Game-{number:03}" for number in range(50, 150)]))
    assert [decision.is_held for decision in held] == [True] * 50 + [False] * 50
    assert watched.counts == {"query": 2}
    drive(reader.decide([f"Game-{number:03}" for number in range(200, 300)]))
    assert watched.counts == {"query": 3}


def test_one_of_two_who_change_a_policy_at_once_begins_again(table):
    quick = Policies(table, ToldClock(NOW), PATIENCE)
    overtaken = disturbed(table, lambda: quick.change(ONE, hold=True))

    drive(Policies(overtaken, ToldClock(NOW + DAY), PATIENCE).set_rules(ONE, WEEK))

    assert deciding(table, "Game-7") == (WEEK, True)


def test_one_who_changes_a_policy_that_is_removed_meanwhile_begins_again(table, policies):
    drive(policies.change(ONE, hold=True))
    overtaken = disturbed(table, lambda: policies.change(ONE, hold=False))

    drive(Policies(overtaken, ToldClock(), PATIENCE).set_rules(ONE, WEEK))

    assert deciding(table, "Game-7") == (WEEK, False)
