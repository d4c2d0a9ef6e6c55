"""Unchanged handlers make no difference, in any world; a changed rule makes exactly its own."""

from hypothesis import given
from hypothesis import strategies as st

from tests.support.reprocessing import RULES, Paid, World, bank, histories, reprocess
from tests.unit.runtime.tables import memory_table

PAYMENTS = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 99)), min_size=1, max_size=12)
ORDERS = st.lists(st.integers(0, 50), max_size=40)


def paid(payments: list[tuple[int, int]], first: int = 0) -> list[tuple[str, Paid]]:
    return [
        (f"m{at}", Paid(account=f"a{who}", amount=amount)) for at, (who, amount) in enumerate(payments, first)
    ]


@given(PAYMENTS, ORDERS)
def test_unchanged_handlers_make_no_difference(payments: list[tuple[int, int]], order: list[int]) -> None:
    world, second = World(), memory_table()
    world.run(paid(payments), bank("same"), order)
    found = reprocess(world.table, second, world.log, bank("same"))
    assert found.documents == []
    assert found.same == sum(map(len, histories(world.table).values()))
    assert histories(second) == {}


@given(PAYMENTS, ORDERS, st.sampled_from(["fee", "state"]))
def test_a_changed_rule_makes_what_a_run_with_it_makes(
    payments: list[tuple[int, int]], order: list[int], rule: str
) -> None:
    world, second, other = World(), memory_table(), World()
    world.run(paid(payments), bank("same"), order)
    other.run(paid(payments), bank(rule), order)
    found = reprocess(world.table, second, world.log, bank(rule), bank("same"))
    before, after, expected = map(histories, (world.table, second, other.table))
    assert before | after == expected
    assert found.objects == {key for key in expected if before[key] != expected[key]}
    assert after.keys() == found.objects


@given(PAYMENTS, ORDERS, st.sampled_from(RULES))
def test_only_objects_that_a_changed_rule_reaches_differ(
    payments: list[tuple[int, int]], order: list[int], rule: str
) -> None:
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
