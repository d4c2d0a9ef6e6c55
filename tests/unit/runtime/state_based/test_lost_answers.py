"""An answer that is lost after the store committed is as good as a crash: read again, and believe what is stored."""

from collections.abc import Iterator

import pytest

from eventstore import InterceptedTable, StoreUnavailableError
from tests.unit.runtime import diary
from tests.unit.runtime.diary import Wrote, ponder, write
from tests.unit.runtime.tables import memory_table
from tests.unit.runtime.worker import NOW, ToldClock, Worker, ends, made_by, outputs, stored


class ChangingSky:
    """A sky that has another colour each time that one looks."""

    def __init__(self) -> None:
        self._colours: Iterator[str] = iter(["red", "green"])

    def __getitem__(self, name: str) -> str:
        return next(self._colours)


def losing(table, clock: ToldClock, *, effect: bool, calls: tuple[str, ...] = ("transact",), times: int = 1):
    """Return the table, but the first answers of some calls are lost, with or without effect; time goes on."""
    lost: list[str] = []

    def lose(name: str, *_: object) -> None:
        if name in calls and len(lost) < times:
            lost.append(name)
            clock.now += 60_000_000
            raise StoreUnavailableError("no answer", outcome_unknown=effect)

    return InterceptedTable(table, after=lose) if effect else InterceptedTable(table, before=lose)


@pytest.mark.parametrize("batch", [None, "batch-1"])
def test_a_message_that_was_stored_although_the_answer_was_lost_is_processed_once(batch):
    table, clock = memory_table(), ToldClock()

    outcomes = Worker(losing(table, clock, effect=True), clock=clock, batch=batch).process(
        write("a"), ponder("p")
    )

    assert made_by(table) == ["a", "p"]
    assert [outcome.version for outcome in outcomes] == [1, 2]
    assert ends(outcomes) == (["processed"] * 2 if batch else ["duplicate"] * 2)
    assert all(len(outcome.outputs) == 1 for outcome in outcomes)


def test_its_outputs_are_those_of_the_clock_that_is_stored(monkeypatch: pytest.MonkeyPatch):
    table, clock = memory_table(), ToldClock()
    worker = Worker(losing(table, clock, effect=True), clock=clock, batch="batch-1")

    (outcome,) = worker.process(write("a"))

    told = Wrote.model_validate_json(outcome.outputs[0].body)
    assert stored(table)[0].record.now == NOW < clock.now
    assert told.now == "2026-01-01T00:00:00+00:00"
    assert outcome.outputs[0].enqueued_at == NOW


def test_its_outputs_are_those_of_the_captured_values_that_are_stored(monkeypatch: pytest.MonkeyPatch):
    table, clock = memory_table(), ToldClock()
    monkeypatch.setattr(diary, "SKY", ChangingSky())

    (outcome,) = Worker(losing(table, clock, effect=True), clock=clock).process(write("a"))

    assert Wrote.model_validate_json(outcome.outputs[0].body).colour == "red"


def test_a_message_that_was_not_stored_is_handled_again_with_the_time_that_it_is_now():
    table, clock = memory_table(), ToldClock()

    (outcome,) = Worker(losing(table, clock, effect=False), clock=clock, batch="batch-1").process(write("a"))

    assert ends([outcome]) == ["processed"]
    assert made_by(table) == ["a"]
    assert stored(table)[0].record.now == clock.now == NOW + 60_000_000


@pytest.mark.parametrize("effect", [True, False])
def test_a_read_without_an_answer_is_read_again(effect):
    table, clock = memory_table(), ToldClock()
    Worker(table).process(write("old"))

    outcomes = Worker(losing(table, clock, effect=effect, calls=("query",), times=3), clock=clock).process(
        write("old"), write("a")
    )

    assert ends(outcomes) == ["duplicate", "processed"]
    assert made_by(table) == ["old", "a"]


def test_several_lost_answers_in_a_row_change_nothing():
    table, clock = memory_table(), ToldClock()
    undisturbed = Worker(memory_table(), batch="batch-1").process(write("a"), write("b"))

    outcomes = Worker(losing(table, clock, effect=True, times=4), clock=clock, batch="batch-1").process(
        write("a"), write("b")
    )

    assert outcomes == undisturbed
    assert outputs(outcomes) == outputs(undisturbed)
    assert made_by(table) == ["a", "b"]
