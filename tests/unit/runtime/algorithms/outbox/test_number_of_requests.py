"""What each algorithm asks of its tables; the table of the docs says the same."""

import re
from collections import Counter
from pathlib import Path

import pytest

from tests.unit.runtime.algorithms.game import SHOT, begun
from tests.unit.runtime.algorithms.world import ALGORITHMS, World
from tests.unit.runtime.diary import app as diary
from tests.unit.runtime.diary import write
from tests.unit.runtime.games import start

DOCS = Path(__file__).parents[5] / "docs" / "algorithms.md"

NEW = {
    "state-based": ["states query", "states transact"],
    "outbox": ["states get", "states transact", "states transact"],
    "deduplication-store": [
        "states get",
        "other get",
        "states transact",
        "other transact",
        "states transact",
    ],
    "tokens": [
        "states get",
        "other get",
        "states transact",
        "other transact",
        "states transact",
        "other transact",
        "states transact",
    ],
}
DUPLICATE = {
    "state-based": ["states query"],
    "outbox": ["states get"],
    "deduplication-store": ["states get", "other get"],
    "tokens": ["states get", "other get"],
}
SILENT = {
    "state-based": ["states query", "states transact"],
    "outbox": ["states get", "states transact"],
    "deduplication-store": NEW["deduplication-store"],
    "tokens": ["states get", "other get", "states transact", "other transact", "states transact"],
}


def requests(world: World) -> list[str]:
    """Return the calls that are requests to a table service: a barrier is none."""
    return [call for call in world.calls if call != "publish" and not call.endswith("barrier")]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_new_message_with_an_output_for_another_handler(algorithm):
    world = begun(algorithm)

    world.deliver(SHOT)

    assert requests(world) == NEW[algorithm]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_new_message_without_outputs(algorithm):
    world = begun(algorithm)

    world.deliver(start(2, 2))

    assert requests(world) == SILENT[algorithm]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_duplicate(algorithm):
    world = begun(algorithm)
    world.deliver(SHOT)

    world.deliver(SHOT)

    assert requests(world) == DUPLICATE[algorithm]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_history_of_an_entity_costs_nothing(algorithm):
    world = begun(algorithm)
    world.deliver(*(start(number, 1) for number in range(2, 60)))

    world.deliver(SHOT)

    assert requests(world) == NEW[algorithm]


def test_outputs_that_no_handler_takes_need_no_tokens():
    world = World("tokens", diary)

    world.deliver(write("a"))

    assert requests(world) == SILENT["tokens"]
    assert "token" not in world.published[0].headers


def test_a_token_for_a_message_from_outside_costs_one_request():
    world = World("tokens", diary)

    world.deliver(write("a"))
    (token,) = world.sent

    assert token == Counter({"other transact": 1})


@pytest.mark.parametrize(
    ("kind", "requests"),
    [
        ("new message with an output for a handler", NEW),
        ("new message without outputs", SILENT),
        ("duplicate of a recent message", DUPLICATE),
    ],
)
def test_the_documentation_says_the_same(kind, requests):
    (row,) = re.findall(rf"^\| requests, {kind} \| (.*) \|$", DOCS.read_text(), re.MULTILINE)

    assert row.split(" | ") == [str(len(requests[algorithm])) for algorithm in ALGORITHMS]
