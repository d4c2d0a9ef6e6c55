"""The meters behind `make algorithms` count what they say, and a play that goes wrong is no measurement."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import get_args

import pytest

from benchmarks.algorithms.batches import BatchPlay
from benchmarks.algorithms.grid import Grid, about, amount
from benchmarks.algorithms.growth import Growth
from benchmarks.algorithms.metered_table import MeteredTable
from benchmarks.algorithms.play import GAMES, Play, shots, starts
from benchmarks.contender import DisagreementError
from eventstore import Int64, Operation, Value, drive
from runtime import Status
from runtime.algorithms.choice import AlgorithmName
from samples.shooting_range.leader_board import LeaderBoard
from samples.shooting_range.shooting_range import ShootingRange

ALGORITHMS = get_args(AlgorithmName)


def test_a_row_has_the_bytes_of_its_keys_names_and_values():
    table = MeteredTable()
    properties: dict[str, Value] = {
        "Text": "four",
        "Bytes": b"123",
        "Number": 1,
        "Long": Int64(1),
        "Is": True,
        "At": datetime(2026, 1, 1, tzinfo=UTC),
    }

    drive(table.transact("part", [Operation.insert("row-key", properties)]))

    names = sum(8 + 2 * len(name) for name in properties)
    values = (2 * 4 + 4) + (3 + 4) + 4 + 8 + 1 + 8
    assert table.stored_bytes == 4 + 2 * len("partrow-key") + names + values


def test_the_bytes_of_keys_are_those_of_the_stored_ones():
    plain, escaped = MeteredTable(), MeteredTable()

    drive(plain.transact("a.b", [Operation.insert("row", {})]))
    drive(escaped.transact("a/b", [Operation.insert("row", {})]))

    assert escaped.stored_bytes - plain.stored_bytes == 2 * 2


def test_bytes_are_those_of_all_rows_that_are_there_now():
    table = MeteredTable()
    for number in range(1100):
        drive(table.transact("many", [Operation.insert(f"row-{number:04}", {})]))
    drive(table.transact("other", [Operation.insert("row", {"A": 1})]))
    drive(table.transact("other", [Operation.delete("row")]))

    assert table.stored_bytes == 1100 * (4 + 2 * len("manyrow-0000"))


def test_barriers_are_no_requests_and_looking_at_the_meters_is_none():
    table = MeteredTable()
    drive(table.transact("part", [Operation.insert(name, {}) for name in "abc"]))
    drive(table.barrier())

    assert drive(table.get("part", "a"))
    assert drive(table.get("part", "d")) is None
    assert len(drive(table.query("part", "a", "b")).rows) == 2
    assert table.stored_bytes

    assert table.requests == 4
    assert table.rows_read == 3


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_what_a_message_costs_is_the_mean_of_all(algorithm):
    play = Play(algorithm, ShootingRange, LeaderBoard)
    _, sent = play.issue([*shots(range(5)), *starts(range(5, 10))])

    spent = play.process(sent)

    once = Play(algorithm, ShootingRange, LeaderBoard)
    loud, silent = (once.process(once.issue(each)[1]) for each in (shots(range(5)), starts(range(5, 10))))
    assert spent.requests == (loud.requests + silent.requests) / 2
    assert spent.runs == loud.runs == silent.runs == 1


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_only_a_state_based_handler_runs_again(algorithm):
    play = Play(algorithm, ShootingRange, LeaderBoard)
    _, sent = play.issue(shots(range(3)))
    play.process(sent)

    assert play.process(sent, Status.DUPLICATE).runs == (algorithm == "state-based")


def test_a_message_that_ends_otherwise_than_expected_is_no_measurement():
    play = Play("outbox", ShootingRange)
    play.process(shots(range(3)))

    with pytest.raises(DisagreementError, match="ended as duplicate, but should be processed"):
        play.process(shots(range(3)))
    with pytest.raises(DisagreementError, match="ended as dead_letter"):
        Play("tokens", ShootingRange).process(shots(range(1)))


IN_BATCHES = {
    "state-based": 2,  # a query and a transaction
    "outbox": 4,  # in each of two passes the entity is read and written
    "deduplication-store": 4 + 100 + 1,  # and each message is looked for, and a hundred are added at once
    "tokens": 4 + 2 * 100,  # and the token of each message is looked for, and deleted
}


@pytest.mark.parametrize("algorithm", IN_BATCHES)
def test_a_game_costs_little_in_a_batch(algorithm):
    play = BatchPlay(algorithm)

    for batch in range(3):
        spent = play.process(batch)
        assert (spent.requests, spent.runs) == (IN_BATCHES[algorithm], 100)


def test_growth_is_what_is_kept_once_messages_are_packed_together():
    steady = [7 * number for number in range(9)]
    packed = [0, 10, 20, 30, 12, 22, 32, 42, 24, 34, 44, 54, 36, 46]
    packed_while_it_grows = [0, 10, 20, 24, 34, 44, 48, 58]
    wobbling = [0, 1, 0, 0, 1, 0, 0, 1, 0]

    assert Growth.of(steady) == (7, 7)
    assert Growth.of(packed) == (10, 3)
    assert Growth.of(packed_while_it_grows) == (10, 8)
    assert Growth.of(wobbling) == (0, 0)


def test_growth_without_two_packings_is_that_at_first():
    assert Growth.of([0, 10, 20, 5, 15, 25]) == (10, 10)


def test_each_game_has_shots_of_its_own():
    messages = shots(range(3))

    assert len({each.business_id for each in messages}) == GAMES
    assert len({each.message_id for each in messages}) == 3 * GAMES


def test_numbers_are_shown_as_they_are_known():
    assert [amount(2.0), amount(1.25)] == ["2", "1.25"]
    assert [about(each) for each in (183.6, 84.4, 0, -0.01, 1234)] == ["180", "84", "0", "0", "1,200"]


def test_a_table_is_shown_as_markdown_and_on_the_terminal(capsys):
    grid = Grid(["", "`a`"], [["requests", "1"], ["bytes", "20"]])

    assert grid.markdown() == "\n|  | `a` |\n| --- | --- |\n| requests | 1 |\n| bytes | 20 |\n\n"
    grid.print()
    shown = capsys.readouterr().out
    assert "requests" in shown
    assert "`" not in shown
