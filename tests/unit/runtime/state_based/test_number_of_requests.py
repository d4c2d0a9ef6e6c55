"""What a stream and batch cost: one query and one transaction, whatever the history."""

import pytest

from eventstore import InterceptedTable
from tests.unit.runtime.diary import misbehave, ponder, write
from tests.unit.runtime.tables import memory_table, rows
from tests.unit.runtime.worker import Worker


def cost(table, *deliveries) -> dict[str, int]:
    counted = InterceptedTable(table)
    Worker(counted).process(*deliveries)
    return dict(counted.counts)


@pytest.mark.parametrize("count", [1, 2, 100])
def test_new_messages_cost_one_query_and_one_transaction(count):
    table = memory_table()
    new = [write(f"m-{number}") for number in range(count)]

    assert cost(table, *new) == {"query": 1, "transact": 1}
    assert cost(table, *(write(f"n-{number}") for number in range(count))) == {"query": 1, "transact": 1}


def test_new_messages_cost_no_more_in_a_stream_with_a_history():
    table = memory_table()
    for number in range(40):
        Worker(table).process(write(f"old-{number}"))

    assert cost(table, write("a"), write("b")) == {"query": 1, "transact": 1}


def test_new_messages_cost_no_more_in_a_stream_with_a_long_history():
    table = memory_table()
    for batch in range(30):
        Worker(table).process(*(ponder(f"old-{batch}-{number}") for number in range(400)))
    assert sum(key.startswith("SS-SE-") for _, key in rows(table)) >= 5

    assert cost(table, write("a"), write("b")) == {"query": 1, "transact": 1}


def test_duplicates_in_the_tail_cost_nothing_more():
    table = memory_table()
    Worker(table).process(write("a"), write("b"))

    assert cost(table, write("a"), write("b")) == {"query": 1}
    assert cost(table, write("a"), write("c")) == {"query": 1, "transact": 1}


@pytest.mark.usefixtures("no_tail")
def test_duplicates_in_runs_cost_one_more_query():
    table = memory_table()
    Worker(table).process(write("a"), write("b"))

    assert cost(table, write("a"), write("b")) == {"query": 2}
    assert cost(table, write("a"), write("c")) == {"query": 2, "transact": 1}


@pytest.mark.usefixtures("no_tail")
def test_duplicates_in_runs_that_stand_together_cost_one_more_query():
    table = memory_table()
    for line in "abcdef":
        Worker(table).process(write(line))

    assert cost(table, write("b"), write("c"), write("d")) == {"query": 2}
    assert cost(table, write("a"), write("c"), write("f")) == {"query": 4}


def test_copies_within_a_batch_cost_nothing():
    assert cost(memory_table(), write("a"), write("a"), write("a")) == {"query": 1, "transact": 1}


def test_dead_letters_cost_what_new_messages_cost_and_again_one_query():
    table = memory_table()

    assert cost(table, misbehave("fail"), write("a")) == {"query": 1, "transact": 1}
    assert cost(table, misbehave("fail")) == {"query": 1}


def test_a_state_that_is_too_large_for_the_header_costs_one_more_query():
    table = memory_table()
    Worker(table).process(write("x" * 40_000, message_id="large"))

    assert cost(table, write("a")) == {"query": 2, "transact": 1}
    # The run with the newest state is the one of the duplicate: it is not read twice.
    assert cost(table, write("a")) == {"query": 2}
