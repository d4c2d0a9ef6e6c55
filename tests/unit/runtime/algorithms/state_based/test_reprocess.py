"""Unchanged handlers make no difference, in any world; a changed rule makes exactly its own."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventstore import drive
from handlers import App, Context, handles
from runtime.algorithms.state_based.reprocess import _numbers
from runtime.algorithms.state_based.truncation import TruncationChoices, truncate_stream
from runtime.ledger.batch import OpenBatches
from runtime.maintenance.forget import Tables, forget
from runtime.messages.outcome import Reason
from runtime.retries import RetryPolicy
from runtime.versions import limits
from tests.support.reprocessing import (
    RULES,
    Account,
    Balance,
    Book,
    Paid,
    World,
    bank,
    histories,
    incomplete,
    reprocess,
)
from tests.unit.runtime.tables import memory_table

PAYMENTS = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 99)), min_size=1, max_size=12)
ORDERS = st.lists(st.integers(0, 50), max_size=40)


def paid(payments: list[tuple[int, int]], first: int = 0) -> list[tuple[str, Paid]]:
    return [
        (f"m{at}", Paid(account=f"a{who}", amount=amount)) for at, (who, amount) in enumerate(payments, first)
    ]


@given(PAYMENTS, ORDERS)
def test_unchanged_handlers_make_no_difference(payments, order):
    world, second = World(), memory_table()
    world.run(paid(payments), bank("same"), order)
    found = reprocess(world.table, second, world.log, bank("same"))
    assert found.documents == []
    assert found.same == sum(map(len, histories(world.table).values()))
    assert histories(second) == {}


def test_outputs_of_unchanged_messages_keep_the_trace_of_their_message():
    world, trace = World(), {"traceparent": f"00-{'1' * 32}-{'2' * 16}-01"}
    world.run(paid([(0, 60)]), bank("same"))
    log = [each._replace(headers=trace) for each in world.log]
    rows = reprocess(world.table, memory_table(), log, bank("same")).rows
    assert [output.headers for each in rows for output in each.outputs][:1] == [trace]


@given(PAYMENTS, ORDERS, st.integers(1, 3), st.booleans())
def test_unchanged_handlers_make_no_difference_where_causes_are_lost(payments, order, kept, is_forgotten):
    world, second = World(), memory_table()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "MAX_SEGMENT_BYTES", 0)  # truncation cuts whole runs
        world.run(paid(payments), bank("same"), order)
    rules = TruncationChoices(keep_last=kept).as_of(3_600_000_000_000, OpenBatches())
    for key in histories(world.table):
        drive(truncate_stream(world.table, "-".join(key), rules, RetryPolicy()))
    if is_forgotten:
        tables = Tables(world.table, world.table, world.table)
        drive(forget(tables, "Account", f"a{payments[0][0]}", 1, restart=False, retries=RetryPolicy()))
    found = reprocess(world.table, second, world.log, bank("same"))
    assert found.documents == []
    assert not incomplete(world.table, second)[0]
    assert histories(second) == {}


@given(PAYMENTS, ORDERS, st.sampled_from(["fee", "state"]))
def test_a_changed_rule_makes_what_a_run_with_it_makes(payments, order, rule):
    world, second, other = World(), memory_table(), World()
    world.run(paid(payments), bank("same"), order)
    other.run(paid(payments), bank(rule), order)
    found = reprocess(world.table, second, world.log, bank(rule), bank("same"))
    before, after, expected = map(histories, (world.table, second, other.table))
    assert before | after == expected
    assert found.objects == {key for key in expected if before[key] != expected[key]}
    assert after.keys() == found.objects


@given(PAYMENTS, ORDERS, st.sampled_from(RULES))
def test_only_objects_that_a_changed_rule_reaches_differ(payments, order, rule):
    world, second = World(), memory_table()
    world.run(paid(payments), bank("same"), order)
    found = reprocess(world.table, second, world.log, bank(rule), bank("same"))
    touched = {("Account", f"a{who}") for who, amount in payments if amount >= 50}
    assert touched <= found.objects if rule != "same" else not found.objects
    assert touched or not found.objects
    assert histories(second).keys() <= found.objects
    totals = {
        field["field"] for _, each in found.documents if each["state"] == "object" for field in each["fields"]
    }
    assert rule not in ("same", "fee") or not totals


@given(PAYMENTS, ORDERS, st.sampled_from(RULES))
def test_handling_all_again_repeats_the_outcomes_and_stores_nothing(payments, order, rule):
    world, second = World(), memory_table()
    world.run(paid(payments), bank("same"), order)
    first = reprocess(world.table, second, world.log, bank(rule), bank("same"))
    stored = histories(second)
    again = reprocess(world.table, second, world.log, bank(rule), bank("same"))
    assert histories(second) == stored
    assert again.objects == first.objects


@given(PAYMENTS, PAYMENTS, ORDERS, st.sampled_from(["fee", "state"]))
def test_messages_that_came_in_since_are_followed(payments, later, order, rule):
    world, second, other = World(), memory_table(), memory_table()
    world.run(paid(payments), bank("same"), order)
    reprocess(world.table, second, world.log, bank(rule), bank("same"))
    world.run(paid(later, 100), bank("same"), order)
    reprocess(world.table, second, world.log[len(payments) :], bank(rule), bank("same"))
    reprocess(world.table, other, world.log, bank(rule), bank("same"))
    assert histories(second) == histories(other)


class Capturing(Account, name="Account"):
    @handles(by="account", revision=2)
    def pay_for_more(self, state: Balance, message: Paid, context: Context) -> Balance:
        return Balance(balance=state.balance + context.capture("bonus", lambda: 3))

    @handles(by="account", revision=1)
    def pay(self, state: Balance, message: Paid, context: Context) -> Balance:
        return super().pay(state, message, context)


def test_a_value_that_was_not_captured_is_a_dead_letter_unless_it_may_be_captured():
    world = World()
    world.run(paid([(0, 20)]), bank("same"))
    app = App(Capturing, Book, name="bank")
    refused = reprocess(world.table, memory_table(), world.log, app)
    (letter,) = (each for each in refused.rows if each.reason is not None)
    assert letter.reason is Reason.HANDLER_ERROR
    assert "'bonus' was not captured" in (letter.error or "")
    second = memory_table()
    reprocess(world.table, second, world.log, app, captures=True)
    assert histories(second)["Account", "a0"][0][1] == b'{"balance":3,"audits":0,"luck":0}'


def test_a_version_whose_message_is_in_no_log_stops_its_object():
    world, second = World(), memory_table()
    world.run(paid([(0, 20), (0, 60)]), bank("same"))
    found = reprocess(world.table, second, world.log[1:], bank("state"), bank("same"), most=3)
    assert ("Account", "a0") not in found.objects
    assert ("Account", "a0") not in histories(second)


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ({"paid": "500"}, {"paid": "499.50"}, [("paid", "500", "499.50")]),
        ({"id": "500"}, {"id": "501"}, []),
        ({"points": 2**127}, {"points": 2**127 + 1}, [("points", str(2**127), str(2**127 + 1))]),
        ({"lines": [{"n": 1}, {"n": 2}]}, {"lines": [{"n": 4}]}, [("lines.n", "3", "4")]),
    ],
)
def test_numbers_are_summed_by_field(before, after, told):
    assert [tuple(each.values()) for each in _numbers(before, after)] == told
