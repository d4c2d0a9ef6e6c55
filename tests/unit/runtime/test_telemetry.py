"""Telemetry: what is measured and traced of single messages and of a consumer, and that a replay counts nothing."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping

import pytest
from opentelemetry import trace as otel
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from prometheus_client.parser import text_string_to_metric_families

from eventstore import drive
from runtime import Envelope, Output, Processor, UsageError
from runtime.algorithms.state_based.replay import Verdict, Verifier
from runtime.messages.outcome import Outcome, Reason, Status
from runtime.messages.parsing import prepare
from runtime.serve import Consumer, ServeOptions
from runtime.telemetry import METRICS, Lines, Metrics, full_name
from tests.plugins.telemetry import samples
from tests.unit.runtime import diary
from tests.unit.runtime.accidents import disturbed, lose_answer
from tests.unit.runtime.diary import misbehave, write
from tests.unit.runtime.patience import PATIENCE
from tests.unit.runtime.serve.topics import World, line, probe, until
from tests.unit.runtime.tables import memory_table
from tests.unit.runtime.worker import ToldClock

PRODUCER = {"traceparent": f"00-{0xABC:032x}-{0xDEF:016x}-01", "tracestate": "vendor=1"}


async def ignore(output: Output) -> None:
    """Publish nowhere."""


def processed(metrics: Metrics) -> Mapping[tuple[str, ...], float]:
    """Return the samples that are not zero, without those of the store."""
    found = samples(metrics.text())
    return {name: value for name, value in found.items() if value and "store_request" not in name[0]}


def traced(id_: str, account: str, number: int = 1) -> bytes:
    return json.dumps(json.loads(line(id_, account, number)) | {"headers": PRODUCER}).encode()


# Traces.


def test_a_consumer_has_a_span_per_message_linked_to_its_producer(recorded):
    world = World()
    world.topic.send(traced("m1", "anna"), line("m2", "anna", 2), traced("m3", "bert", -1))

    world.consume()

    spans = {span.attributes["messaging.message.id"]: span for span in recorded.spans}
    first, second, third = (spans[id_] for id_ in ("m1", "m2", "m3"))
    assert first.name == "process entries"
    assert first.kind is otel.SpanKind.CONSUMER
    assert dict(first.attributes) == {
        "messaging.system": "topic", "messaging.operation.name": "process", "messaging.operation.type": "process",
        "messaging.destination.name": "entries", "messaging.destination.partition.id": "0",
        "messaging.kafka.offset": 0, "messaging.consumer.group.name": "group", "messaging.message.id": "m1",
        "messaging.message.body.size": len(traced("m1", "anna")), "consistent.handler": "Accounts",
        "consistent.business_id": "anna", "consistent.version": 1, "consistent.status": "processed",
    }  # fmt: skip
    (link,) = first.links
    assert (link.context.trace_id, link.context.span_id) == (0xABC, 0xDEF)
    assert (first.parent.span_id, first.context.trace_id) == (0xDEF, 0xABC)
    # A message without a producer begins a trace
    assert (second.parent, list(second.links)) == (None, [])
    # A dead letter is an error
    assert third.attributes["error.type"] == "handler_error"
    assert third.status.status_code is otel.StatusCode.ERROR
    # Outputs continue the trace of their message
    headers = {json.loads(each.body)["number"]: each.headers for each in world.target.sent}
    for number, span in ((1, first), (2, second)):
        context = TraceContextTextMapPropagator().extract(dict(headers[number]))
        assert otel.get_current_span(context).get_span_context().span_id == span.context.span_id
    assert headers[1]["tracestate"] == "vendor=1"


def test_a_processor_has_a_span_within_the_current_one(recorded):
    processor = Processor(diary.app, memory_table(), ignore)
    message = write("a line", "m-1")._replace(headers=PRODUCER)

    with recorded.tracers.get_tracer("app").start_as_current_span("receive"):
        drive(processor.process(message))

    inner, outer = recorded.spans
    assert (inner.name, inner.parent.span_id) == ("process Diary", outer.context.span_id)
    assert [link.context.span_id for link in inner.links] == [0xDEF]


def test_a_span_ends_with_an_error_that_stops_its_message(recorded):
    async def fail(_: Output) -> None:
        raise ConnectionError("the target is gone")

    processor = Processor(diary.app, memory_table(), fail)
    with pytest.raises(ConnectionError):
        drive(processor.process(write("a line", "m-1")))

    (span,) = recorded.spans
    assert span.status.description == "ConnectionError: the target is gone"
    assert span.events[0].attributes["exception.type"] == "ConnectionError"


# Metrics.


def test_a_replay_never_counts_as_processed(recorded):
    table, metrics = memory_table(), Metrics()
    processor = Processor(diary.app, table, ignore, clock=ToldClock(), metrics=metrics)
    message = write("a line", "m-1")
    drive(processor.process(message))
    once = {("consistent_messages_total", "Diary", "processed"): 1.0}
    assert processed(metrics) == once

    # When it is redelivered, and its version verified
    drive(processor.process(message))
    (handler,) = diary.app.handlers.values()
    delivery = prepare(handler, diary.DIARY, message)
    (finding,) = drive(Verifier(table, handler, PATIENCE).verify(diary.DIARY, [delivery]))
    assert finding.verdict is Verdict.MATCH

    # Then only a duplicate is counted
    assert processed(metrics) == once | {("consistent_messages_total", "Diary", "duplicate"): 1.0}
    counted = recorded.metrics()
    assert counted["consistent.messages", "Diary", "processed"] == 1
    assert counted["consistent.messages", "Diary", "duplicate"] == 1


def test_a_delivery_that_is_read_again_by_another_consumer_counts_as_duplicate(recorded):
    # Given a consumer that died after it had stored a version, before it acknowledged the message
    world = World()
    world.topic.send(line("m1", "anna"), line("m2", "anna"))
    world.consume()
    world.topic.committed["entries/0"] = 0

    consumer = world.consume()

    # Then the position tells that it is the delivery that made the version, but it is a replay
    assert consumer.counts["processed"] == 2
    counted = recorded.metrics()
    assert counted["consistent.messages", "Accounts", "processed"] == 2
    assert counted["consistent.messages", "Accounts", "duplicate"] == 2
    assert counted["consistent.published_outputs",] == 4


def test_conflicts_and_failures_of_the_store_are_counted():
    table, metrics = memory_table(), Metrics()
    other = Processor(diary.app, table, ignore)

    def write_too() -> None:
        drive(other.process(write("before", "m-0")))

    conflicting = disturbed(table, write_too)
    drive(Processor(diary.app, conflicting, ignore, metrics=metrics).process(write("a line", "m-1")))
    lost = disturbed(table, lose_answer, after=True)
    (outcome,) = drive(Processor(diary.app, lost, ignore, metrics=metrics).process(write("a line", "m-2")))

    assert outcome.status is Status.DUPLICATE  # its own write, whose answer was lost
    assert processed(metrics) == {
        ("consistent_messages_total", "Diary", "processed"): 1.0,
        ("consistent_messages_total", "Diary", "duplicate"): 1.0,
        ("consistent_conflicts_total",): 1.0,
        ("consistent_store_failures_total",): 1.0,
    }
    assert samples(metrics.text())["consistent_store_request_seconds_count", "transact"] == 3


def test_dead_letters_are_counted_by_reason_and_no_sender_chooses_labels():
    metrics = Metrics()
    processor = Processor(diary.app, memory_table(), ignore, metrics=metrics)
    unknown = Envelope.of("m-2", "Unknown", "{}")
    for message in (misbehave("fail", "m-1"), unknown):
        drive(processor.process(message))
    metrics.handled([Outcome(unknown, "of a sender", None, Status.DEAD_LETTER, Reason.UNKNOWN_HANDLER)])

    assert processed(metrics) == {
        ("consistent_messages_total", "", "dead_letter"): 2.0,
        ("consistent_messages_total", "Diary", "dead_letter"): 1.0,
        ("consistent_dead_letters_total", "", "unknown_type"): 1.0,
        ("consistent_dead_letters_total", "", "unknown_handler"): 1.0,
        ("consistent_dead_letters_total", "Diary", "handler_error"): 1.0,
    }


def test_prometheus_scrapes_a_consumer(caplog):
    caplog.set_level("INFO", "consistent.serve")
    world = World()
    answers = world.hold("slow")
    world.options = ServeOptions(linger_ms=0, health_port=0)
    enqueued = json.loads(line("m2", "slow")) | {"enqueued_at": "2026-01-01T00:00:00Z"}
    world.topic.send(line("m1", "anna"), json.dumps(enqueued).encode())

    async def during(consumer: Consumer) -> None:
        await until(lambda: consumer.counts["published"] == 1)
        lane = world.topic.lanes["entries/0"]
        lane.end = lambda: 12
        _, kind, text = await asyncio.to_thread(probe, caplog, "/metrics")
        found = samples(text)
        assert kind == "text/plain; version=0.0.4; charset=utf-8"
        assert found["consistent_messages_total", "Accounts", "processed"] == 1
        assert found["consistent_held_messages",] == 1
        assert found["consistent_oldest_message_age_seconds",] > 86_400
        assert found["consistent_source_lag", "entries/0"] == 11
        assert found["consistent_unavailable_services",] == 0
        assert found["consistent_published_outputs_total",] == 1
        assert found["consistent_store_request_seconds_count", "transact"] == 1
        answers.set()
        await world.until_all_is_acknowledged()

    world.consume(during)


def test_a_queue_that_knows_its_length_tells_it():
    world = World()
    world.options = ServeOptions(linger_ms=0, health_port=0)

    async def waiting() -> int:
        return 7

    world.topic.waiting = waiting  # type: ignore[attr-defined]

    async def during(consumer: Consumer) -> None:
        await until(lambda: consumer._waiting)
        consumer._measure()
        assert samples(consumer._metrics.text())["consistent_source_lag", "topic"] == 7

    world.consume(during)


def test_nothing_is_measured_unless_asked_for():
    world = World()
    world.topic.send(line("m1", "anna"))

    consumer = world.consume()

    assert not consumer._metrics.is_on
    assert processed(consumer._metrics) == {}


def test_text_is_escaped_and_histograms_are_cumulative():
    metrics = Metrics()
    metrics.add("dead_letters", 2, 'a"b\\c\nd', "reason")
    for seconds in (0.0001, 0.02, 99):
        metrics.observe("store_request", seconds, "get")

    found = samples(metrics.text())

    assert found["consistent_dead_letters_total", 'a"b\\c\nd', "reason"] == 2
    name = "consistent_store_request_seconds"
    assert [found[f"{name}_bucket", "get", le] for le in ("0.0005", "0.025", "+Inf")] == [1, 2, 3]
    assert found["consistent_store_request_seconds_sum", "get"] == pytest.approx(99.0201)
    assert {family.name for family in text_string_to_metric_families(metrics.text())} == {
        full_name(name).removesuffix("_total") for name in METRICS
    }


def test_a_file_continues_its_counters_and_is_replaced_atomically(tmp_path):
    file = tmp_path / "batch.prom"
    for _ in range(2):
        with Metrics(file=file) as metrics:
            metrics.add("messages", 3, 'a"b\\c\nd', "processed")
            metrics.add("batches", 1)
            metrics.set("last_batch", {(): 1.5})

    found = samples(file.read_text())
    assert found["consistent_messages_total", 'a"b\\c\nd', "processed"] == 6
    assert found["consistent_batches_total",] == 2
    assert found["consistent_last_batch_seconds",] == 1.5
    assert [each.name for each in tmp_path.iterdir()] == ["batch.prom"]
    assert file.stat().st_mode & 0o777 == 0o644  # the collector is another user
    with pytest.raises(UsageError, match="does not exist"):
        Metrics(file=tmp_path / "nowhere" / "batch.prom")


def test_a_driver_adds_up_what_its_workers_counted():
    worker, driver = Metrics(forwards=False), Metrics()
    worker.add("messages", 2, "Diary", "processed")
    worker.observe("store_request", 0.02, "get")

    for _ in range(2):
        driver.merge(worker.dump())
    driver.merge(Metrics(is_on=False).dump())

    found = samples(driver.text())
    assert found["consistent_messages_total", "Diary", "processed"] == 4
    assert found["consistent_store_request_seconds_count", "get"] == 2


# Logs.


def test_events_are_lines_of_json(monkeypatch):
    record = logging.LogRecord(
        "consistent.serve", logging.WARNING, "", 1, "%s is\nforged\u202e", ("m-1",), None
    )
    record.fields = {"message": "m-1", "object": "anna"}
    text = Lines("%(levelname)s %(message)s")
    assert text.format(record) == "WARNING m-1 is\\nforged\\u202e"

    monkeypatch.setenv("CONSISTENT_LOG_FORMAT", "json")
    line_ = text.format(record)

    assert line_.isascii()
    assert "\n" not in line_
    told = json.loads(line_)
    assert told.pop("time").startswith("20")
    assert told == {
        "level": "warning", "event": "m-1 is\nforged\u202e", "logger": "consistent.serve", "message": "m-1",
        "object": "anna",
    }  # fmt: skip


def test_a_dead_letter_of_a_consumer_names_its_message(caplog):
    world = World()
    world.topic.send(traced("m1", "anna", -1))

    world.consume()

    (fields,) = [each.fields for each in caplog.records if hasattr(each, "fields")]
    assert fields == {
        "message": "m1", "handler": "Accounts", "object": "anna", "reason": "handler_error",
        "traceparent": PRODUCER["traceparent"],
    }  # fmt: skip
