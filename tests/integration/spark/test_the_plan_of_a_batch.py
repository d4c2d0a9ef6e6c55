"""What Spark is asked to do: one shuffle, by stream, and nothing that shuffles or samples after the fold."""

import re
from itertools import pairwise

import pytest

from handlers import App, Context, Handler, Message, State, handles
from runtime.spark.logs import normalise as log_module
from runtime.spark.logs.normalise import normalise
from runtime.spark.logs.read import open_log
from runtime.spark.logs.route import find_routes, group, route
from runtime.spark.session import job_settings
from samples.shooting_range import app
from tests.support.logs import fire, generated, message_id, write_lines

FORGET = "m\nd\n"
"""How a command begins that lets Java forget an object, whenever Python has done so."""


class Told(Message):
    key: str


class Count(State):
    count: int = 0


class Listener(Handler[Count]):
    @handles(by="key")
    def told(self, state: Count, message: Told, context: Context) -> Count:
        return state


class Friend(Handler[Count]):
    @handles(by="key")
    def told(self, state: Count, message: Told, context: Context) -> Count:
        return state


def test_messages_are_shuffled_once_and_split_no_stream(place):
    log = generated(place.folder / "log.jsonl", games=10, messages=200, duplicates=0.2)

    routed = route(normalise(open_log(place.spark, log).rows), app, 3)

    plan = routed._jdf.queryExecution().executedPlan().toString()
    exchanges = re.findall(r"\bExchange (\w+)\((.*?)\), (\w+)", plan)
    assert len(exchanges) == 1, plan
    ((partitioning, columns, origin),) = exchanges
    assert partitioning == "hashpartitioning"
    assert re.findall(r"(\w+)#\d+", columns) == ["handler", "business_id", "spread"]
    # a number of partitions given by name, which Spark neither coalesces nor splits
    assert origin == "REPARTITION_BY_NUM"
    assert routed.rdd.getNumPartitions() == 3


@pytest.mark.thorough
def test_a_session_without_hints_shuffles_all_the_same(place):
    log = generated(place.folder / "log.jsonl", games=1, messages=10)
    session = place.spark.newSession()
    session.conf.set("spark.sql.optimizer.disableHints", "true")

    with job_settings(session):
        routed = route(normalise(open_log(session, log).rows), app, 3)
        assert routed.rdd.getNumPartitions() == 3


@pytest.mark.thorough
def test_the_shuffle_is_planned_in_a_few_calls_into_java(place, monkeypatch):
    log = generated(place.folder / "log.jsonl", games=1, messages=10)
    routed = find_routes(normalise(open_log(place.spark, log).rows), app)
    client, calls = place.spark.sparkContext._gateway._gateway_client, []
    send = client.send_command

    def counted(command, *given, **named):
        calls.append(command)
        return send(command, *given, **named)

    monkeypatch.setattr(client, "send_command", counted)
    group(routed, 3)
    monkeypatch.undo()

    assert len([command for command in calls if not command.startswith(FORGET)]) < 20, calls
    # what the plan was named by is gone
    assert place.spark.catalog.listTables() == []


def test_what_takes_long_is_computed_once_for_a_row(place):
    log = generated(place.folder / "log.jsonl", games=1, messages=10)

    plan = normalise(open_log(place.spark, log).rows)._jdf.queryExecution().executedPlan().toString()

    # the line and its headers
    assert plan.count("from_json(") == 2, plan
    assert plan.count(log_module._TIME) == plan.count(log_module._NUMBER) == plan.count(log_module._HALF) == 1


def test_a_business_id_is_read_once_however_many_handlers_ask_for_it(place):
    log = generated(place.folder / "log.jsonl", games=1, messages=10)

    routed = route(normalise(open_log(place.spark, log).rows), App(Listener, Friend), 3)

    plan = routed._jdf.queryExecution().executedPlan().toString()
    # beside the line and its headers, which are read once too
    assert plan.count("from_json(") == 3, plan


def test_rows_of_a_stream_are_together_and_in_order(place):
    log = generated(place.folder / "log.jsonl", games=10, messages=200, duplicates=0.2, shuffle=True)

    partitions = route(normalise(open_log(place.spark, log).rows), app, 3).rdd.glom().collect()

    rows = [row for partition in partitions for row in partition]
    streams = [(row.handler, row.business_id) for row in rows]
    changes = 1 + sum(1 for before, after in pairwise(streams) if before != after)
    assert changes == len(set(streams)) == 10
    for stream in set(streams):
        positions = [row.sequence for row in rows if (row.handler, row.business_id) == stream]
        assert positions == sorted(positions)


@pytest.mark.thorough
def test_copies_stand_together_at_the_smallest_position_of_any_of_them(place):
    # Given two messages, the copies of which lie around each other
    rows = [fire(1, 5, sequence=9), fire(2, 5, sequence=2), fire(1, 5, sequence=1), fire(2, 5, sequence=5)]
    log = write_lines(place.folder / "log.jsonl", [*rows, {**fire(1, 5), "sequence": None}])

    routed = route(normalise(open_log(place.spark, log).rows), app, 1).collect()

    assert [(row.message_id, row.sequence) for row in routed] == [
        (message_id(1), 1),
        (message_id(1), 9),
        (message_id(1), None),
        (message_id(2), 2),
        (message_id(2), 5),
    ]
