"""An algorithm is chosen by its name; where its store is kept is up to the user."""

from typing import Any

import pytest

from eventstore import drive
from runtime import Processor, UsageError
from tests.unit.runtime import diary
from tests.unit.runtime.algorithms.game import SHOT, begun
from tests.unit.runtime.algorithms.world import ALGORITHMS, World
from tests.unit.runtime.diary import write
from tests.unit.runtime.tables import memory_table, rows
from tests.unit.runtime.test_processor import ignore
from tests.unit.runtime.worker import ends


def test_another_name_is_refused_with_the_names_there_are():
    with pytest.raises(UsageError, match="use one of state-based, outbox, deduplication-store, tokens"):
        Processor(diary.app, memory_table(), ignore, algorithm="inbox")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("store", "user"), [("deduplication_store", "deduplication-store"), ("token_store", "tokens")]
)
def test_a_store_that_the_algorithm_does_not_use_is_refused(store, user):
    given: dict[str, Any] = {store: memory_table()}

    for algorithm in set(ALGORITHMS) - {user}:
        with pytest.raises(UsageError, match=f"Only the algorithm {user} .*: omit it with {algorithm}."):
            Processor(diary.app, memory_table(), ignore, algorithm=algorithm, **given)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_ids_and_tokens_may_stand_beside_the_states(table, algorithm):
    world = World(algorithm, diary.app, states=table, other=table)

    outcomes = world.deliver(write("a"), write("a"), write("b"))

    assert ends(outcomes) == ["processed", "duplicate", "processed"]
    assert world.garbage() == []


def test_the_ids_of_a_store_are_not_in_the_table_of_the_states():
    world = begun("deduplication-store")
    world.deliver(SHOT)

    assert {row_key for _, row_key in rows(world.states)} == {"ENTITY"}
    assert {row_key for _, row_key in rows(world.other)} == {"ID-T-start-1", "ID-T-fire-1"}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_sweep_finds_nothing_where_all_is_done(algorithm):
    world = World(algorithm, diary.app)
    world.deliver(write("a"))

    assert drive(world.worker().sweep()) == 0


def test_message_ids_that_no_row_key_can_hold_are_told_apart():
    world = World("deduplication-store", diary.app)
    ids = ["/" * 255, "/" * 254 + "#", "x" * 121, "x" * 120, "é/%"]

    first = world.deliver(*(write("line", each) for each in ids))
    again = world.deliver(*(write("line", each) for each in ids))

    assert ends(first) == ["processed"] * 5
    assert ends(again) == ["duplicate"] * 5
