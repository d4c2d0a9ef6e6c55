"""Consumers of which a few are killed lose nothing and publish as they promise; and what differs would be seen."""

from __future__ import annotations

import pytest

from tests.serve_kills.__main__ import main
from tests.serve_kills.world import Published, differences

BODY = {"account": "account-1", "number": 1}
SENT = [{"message_id": "1-1", "type": "Add", "body": BODY}]
OUTPUT = Published("out-1", {**BODY, "count": 1, "drawn": 7})


@pytest.mark.thorough
@pytest.mark.parametrize("broker", ["kafka", "azurequeue", "amqp"])
def test_consumers_that_are_killed_lose_nothing(broker, capsys):
    assert main(["--kills", "3", "--seed", "5", "--rate", "100", "--broker", broker]) == 0

    assert "Nothing differs." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("published", "wrong"),
    [
        ([OUTPUT], ""),
        ([], "lost"),
        ([OUTPUT, OUTPUT], "twice"),
        ([OUTPUT, OUTPUT._replace(body={**OUTPUT.body, "drawn": 8})], "another body"),
        ([OUTPUT, OUTPUT._replace(message_id="out-2")], "2 ids of 1 outputs"),
        ([OUTPUT._replace(body={**OUTPUT.body, "count": 2})], "handled out of order"),
    ],
)
def test_what_differs_is_seen(published, wrong):
    found = differences(SENT, published, is_exact=True)
    assert wrong in "\n".join(found)
    assert bool(found) == bool(wrong)


def test_copies_count_where_they_are_promised_not_to_be():
    assert differences(SENT, [OUTPUT, OUTPUT], is_exact=False) == []
