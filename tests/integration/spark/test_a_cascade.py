"""A cascade: the outputs of a round are the messages of the next, until no handler takes any."""

from __future__ import annotations

import asyncio
import json

import pytest

from handlers import App, Context, Handler, Message, State, handles
from runtime.errors import BatchFailedError
from runtime.spark.worker.connection import open_table
from tests.support.clocks import FrozenClock
from tests.support.logs import fire, row, start, write_lines
from tests.support.outcomes import by_status, heads, published

pytestmark = pytest.mark.connect


class Ping(Message):
    key: str
    left: int


class Told(Message):
    key: str


class Count(State):
    count: int = 0


class Player(Handler[Count]):
    """Answers itself until nothing is left, and tells somebody outside."""

    @handles(by="key")
    def ping(self, state: Count, message: Ping, context: Context) -> Count:
        context.publish(Told(key=message.key))
        if message.left:
            context.publish(Ping(key=message.key, left=message.left - 1))
        return state.model_copy(update={"count": state.count + 1})


class Listener(Handler[Count]):
    @handles(by="key")
    def told(self, state: Count, message: Told, context: Context) -> Count:
        return state.model_copy(update={"count": state.count + 1})


class Friend(Handler[Count]):
    @handles(by="key")
    def told(self, state: Count, message: Told, context: Context) -> Count:
        return state.model_copy(update={"count": state.count + 1})


app = App(Player)


def test_rounds_go_on_until_no_handler_takes_an_output(place):
    place.app = app
    log = write_lines(place.folder / "log.jsonl", [row(1, "Ping", {"key": "a", "left": 3})])
    said: list[str] = []
    outcomes = place.run(log, cascade=True, step=said.append)

    # Each round handles the answer of the one before; what no handler takes is published, not a dead letter
    assert sorted(each.round for each in outcomes.collect()) == [0, 1, 2, 3]
    assert by_status(outcomes) == {("Player", "processed"): 4}
    assert sorted(output[1] for output in published(outcomes)) == ["Ping"] * 3 + ["Told"] * 4
    # and the user is told how much was done in each
    assert sum(": 1 outcomes, " in each for each in said) == 4


@pytest.mark.thorough
def test_a_cascade_that_does_not_end_stops_and_can_be_resumed(place):
    place.app = app
    log = write_lines(place.folder / "log.jsonl", [row(1, "Ping", {"key": "a", "left": 3})])
    with pytest.raises(BatchFailedError, match="has not ended after 2 rounds"):
        place.run(log, cascade=True, batch_id="night", max_rounds=2)
    assert by_status(place.run(log, cascade=True, batch_id="night")) == {("Player", "processed"): 4}


@pytest.mark.thorough
def test_an_output_that_stands_in_the_log_too_is_handled_once(place):
    # Given the hit that a shot gave in an earlier batch
    log = write_lines(place.folder / "log.jsonl", [start(1, 5), fire(2, 5)])
    ((message_id, type_, body, *_),) = published(place.run(log))
    hit = {"message_id": message_id, "type": type_, "body": body}

    # When it stands in a log together with the shot
    both = write_lines(place.folder / "both.jsonl", [start(1, 5), fire(2, 5), hit])
    outcomes = place.run(both, cascade=True)

    # Then it is processed once, and no outcome repeats it
    assert by_status(outcomes) == {("ShootingRange", "duplicate"): 2, ("LeaderBoard", "processed"): 1}
    ((_, score),) = [
        each for key, each in heads(place.store, place.table).items() if key.startswith("Leader")
    ]
    assert json.loads(score)["number_of_hits"] == 1


@pytest.mark.thorough
def test_an_output_that_the_log_holds_for_one_handler_reaches_the_others(place):
    # Given what a player told somebody in an earlier batch
    ping = row(1, "Ping", {"key": "a", "left": 0})
    place.app = app
    ((message_id, type_, body, *_),) = published(place.run(write_lines(place.folder / "1.jsonl", [ping])))

    # When a log has it for one of its handlers, together with the message that publishes it
    place.app = App(Player, Listener, Friend)
    told = {"message_id": message_id, "type": type_, "body": body, "handler": "Friend"}
    outcomes = place.run(write_lines(place.folder / "2.jsonl", [ping, told]), cascade=True)

    # Then each handler has processed it once
    found = sorted((each.round, each.handler, each.status) for each in outcomes.collect())
    assert found == [
        (0, "Friend", "processed"),
        (0, "Player", "duplicate"),
        (1, "Listener", "processed"),
    ]


@pytest.mark.thorough
def test_outputs_of_a_clock_that_was_ahead_are_handled_all_the_same(place):
    # Given a batch whose first round ran while the clock was two hours ahead
    place.app = app
    log = write_lines(place.folder / "log.jsonl", [row(1, "Ping", {"key": "a", "left": 1})])

    def die(step: str) -> None:
        if step == "Round 1: handling messages":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        place.run(log, cascade=True, batch_id="night", clock=FrozenClock.at("2026-03-01T14:00:00"), step=die)

    # When it is resumed after the clock was put right
    outcomes = place.run(log, cascade=True, batch_id="night", clock=FrozenClock.at("2026-03-01T12:00:00"))

    assert by_status(outcomes) == {("Player", "processed"): 2}


@pytest.mark.thorough
def test_a_store_on_the_network_can_be_used_from_a_notebook(azurite_url):
    # A notebook has an event loop under way
    async def cell():
        connection = open_table(azurite_url, "notebook")
        return connection.run(connection.table.get("a", "b"))

    assert asyncio.run(cell()) is None
