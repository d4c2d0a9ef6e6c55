"""What each algorithm asks of its tables; the table of the docs says the same."""

import re
from pathlib import Path

import pytest

from tests.unit.runtime.algorithms.game import SHOT, begun, start
from tests.unit.runtime.algorithms.world import ALGORITHMS, World
from tests.unit.runtime.diary import app as diary
from tests.unit.runtime.diary import write

DOCS = Path(__file__).parents[5] / "docs" / "algorithms.md"

NEW = {
    "state-based": ["states query", "states transact"],
    "outbox": ["states get", "states transact", "states transact"],
    "deduplication-store": [
        "states get",
        "other get",
        *["states transact", "other transact"],
        "states transact",
    ],
    "tokens": ["states get", "other get", *["states transact", "other transact"] * 2, "states transact"],
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
    "tokens": NEW["deduplication-store"],
}


def requests(world: World) -> list[str]:
    """Return the calls that are requests to a table service: a barrier is none."""
    return [call for call in world.calls if call != "publish" and not call.endswith("barrier")]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize(
    ("before", "message", "expected"),
    [
        ([], SHOT, NEW),
        ([], start(2, 2), SILENT),
        ([SHOT], SHOT, DUPLICATE),
        ([start(number, 1) for number in range(2, 60)], SHOT, NEW),
    ],
    ids=["an output for another handler", "no outputs", "a duplicate", "a history"],
)
def test_requests(algorithm, before, message, expected):
    world = begun(algorithm)
    world.deliver(*before)

    world.deliver(message)

    assert requests(world) == expected[algorithm]


def test_outputs_that_no_handler_takes_need_no_tokens_and_a_message_from_outside_costs_one_request():
    world = World("tokens", diary)

    world.deliver(write("a"))

    assert requests(world) == SILENT["tokens"]
    assert "token" not in world.published[0].headers
    assert world.sent == [{"other transact": 1}]


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
