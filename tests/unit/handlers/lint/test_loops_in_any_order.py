"""A loop over a set may do what comes to the same in any order, and nothing else."""

import pytest

from tests.unit.handlers.lint.conftest import codes

START = "found, count = set(), 0\nfor name in state.names:\n"


@pytest.mark.parametrize(
    "body",
    [
        "found.add(name.lower())",
        "if name != message.text:\n        found.discard(name)\n    else:\n        count += 1",
        "count += 2\n    continue",
        "if name == message.text:\n        return None",
        "pass",
    ],
)
def test_what_comes_to_the_same(lint, body):
    assert codes(lint(f"{START}    {body}")) == []


@pytest.mark.parametrize(
    "body",
    [
        "if len(found) < 2:\n        found.add(name)",
        "found.add(count)\n    count += 1",
        "if name == message.text:\n        return name",
        "if name == message.text:\n        return None\n    if name:\n        return 1",
        "if (count := count + 1) < 2:\n        found.add(name)",
        "context.publish(Told(id=name))",
        "count = count * 2 + len(name)",
        "found.add(name)\n    break",
        "found.update(name)\n    last = name",
    ],
)
def test_what_does_not(lint, body):
    assert codes(lint(f"{START}    {body}")) == ["CM701"]


def test_what_a_later_round_sees_of_an_earlier_one(lint):
    body = "before = []\nfor _ in (1, 2):\n    names = [name for name in before]\n    before = state.names"

    assert codes(lint(body)) == ["CM701"]
