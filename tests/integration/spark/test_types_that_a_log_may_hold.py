"""A log of senders who may send some types only: messages of other types are dead letters, whoever takes them."""

from __future__ import annotations

import json

import pytest

from runtime.errors import UsageError
from tests.support.logs import GAME, fire, message_id, row, start, write_lines


@pytest.mark.thorough
def test_other_types_are_dead_letters_and_change_nothing(place, tmp_path):
    hit = {"game_id": GAME, "position": 40}
    rows = [
        start(1, 40),
        fire(2, 40),
        row(3, "Hit", hit),
        row(4, "Hit", hit, handler="LeaderBoard"),
        row(5, "Surprise", hit),
        row(6, "FireAt", hit, handler="Nobody"),
        row(7, "", hit),
    ]
    log = write_lines(tmp_path / "log.jsonl", rows)

    outcomes = place.run(log, types=["StartNewRound", "FireAt"], cascade=True, batch_id="b").collect()

    of_log = {message_id(number) for number in range(1, 8)}
    found = {each.message_id: each.reason or each.status for each in outcomes if each.message_id in of_log}
    assert list(map(found.get, sorted(of_log))) == [
        "processed",
        "processed",
        *["type_not_allowed"] * 3,
        "unknown_handler",
        "invalid_envelope",
    ]
    assert {each.status for each in outcomes if each.message_id not in of_log} == {"processed"}
    (named,) = [each for each in outcomes if each.message_id == message_id(4)]
    assert json.loads(named.delivery)["handler"] == "LeaderBoard"
    with pytest.raises(UsageError, match="other input"):
        place.run(log, types=["FireAt"], cascade=True, batch_id="b")
    with pytest.raises(UsageError, match=r"not .*Fire'"):
        place.run(log, types=["Fire"])
