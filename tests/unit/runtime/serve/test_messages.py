"""Envelopes of brokers, positions of versions, and urls of sources and targets."""

from __future__ import annotations

import asyncio
import json
import traceback
from datetime import UTC, datetime
from typing import Any

import pytest

from runtime.errors import UsageError
from runtime.messages.envelope import Envelope
from runtime.messages.outcome import Reason, dead_letter
from runtime.messages.records import Decoding
from runtime.publishing.publisher import CommittedOutput
from runtime.serve.messages import (
    Lane,
    Received,
    letter_of,
    open_settlement,
    open_source,
    read_message,
    written,
)
from runtime.serve.streams import is_published_by_another, makers, position_of
from tests.unit.runtime.serve.topics import Topic, line

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
MICROSECONDS = 1_767_268_800_000_000


def test_an_envelope_has_a_body_as_an_object_or_as_text():
    fields = {"message_id": "m1", "type": "Add", "enqueued_at": NOON.isoformat(), "headers": {"a": "b"}}
    for body in ({"price": 1.10}, '{"price": 1.1}'):
        found = read_message(json.dumps({**fields, "body": body}).encode(), "here").envelope

        assert (found.message_id, found.type, found.body) == ("m1", "Add", '{"price": 1.1}')
        assert (found.enqueued_at, found.headers) == (MICROSECONDS, {"a": "b"})

    # A number keeps its digits
    content = b'{"message_id": "m1", "type": "Add", "body": {"price": 1.1000000000000000000001}}'
    assert read_message(content, "here").envelope.body == '{"price": 1.1000000000000000000001}'


def test_a_message_with_id_and_type_as_properties_is_its_body_and_has_the_time_of_its_broker():
    found = read_message(b"{}", "here", "m1", "Add", {"a": "b"}, MICROSECONDS).envelope
    assert (found.message_id, found.type, found.body) == ("m1", "Add", "{}")
    assert (found.headers, found.enqueued_at) == ({"a": "b"}, MICROSECONDS)
    own = read_message(b"{}", "here", "m1", "Add", {"enqueued_at": "7"}, MICROSECONDS).envelope
    assert (own.headers, own.enqueued_at) == (None, 7)


@pytest.mark.parametrize(
    "content", [b"no json", b"\xff", b'{"type": "Add"}', b'{"message_id": "", "type": "Add", "body": {}}']
)
def test_what_is_no_envelope_keeps_its_content(content):
    found = read_message(content, "entries/0/7")
    assert found.problem
    assert found.envelope.message_id == "entries/0/7"
    assert found.envelope.body == content.decode("utf-8", "backslashreplace")


def test_an_output_is_written_as_it_is_read():
    output = CommittedOutput("m1", "Added", '{"number": 1}', "anna", "Accounts", 7, NOON, {"a": "b"})

    found = read_message(written(output), "here").envelope

    assert (found.message_id, found.type, found.body, found.sequence) == ("m1", "Added", '{"number": 1}', 7)
    assert (found.enqueued_at, found.headers) == (MICROSECONDS, {"a": "b"})


def _received(lane: Lane | None, *offsets: int) -> list[Received]:
    return [read_message(line(f"m{each}", "anna"), "", lane=lane, offset=each) for each in offsets]


def test_a_position_names_deliveries_by_lane():
    one, other = Lane("entries/0"), Lane("my.entries/11")
    received = [*_received(one, 7, 8, 9), *_received(other, 3), *_received(one, 12)]

    position = position_of("kafka:cluster/group", received)

    assert position == "@kafka:cluster/group entries/0:7-9,12 my.entries/11:3"
    assert makers("kafka:cluster/group", position) == {
        "entries/0": [range(7, 10), range(12, 13)],
        "my.entries/11": [range(3, 4)],
    }
    assert makers("kafka:cluster/other", position) == {}
    assert makers("kafka:cluster/group", "20260301T120000-3f9a1c") == {}
    assert makers("kafka:cluster/group", None) == {}


@pytest.mark.parametrize(
    ("offset", "base", "is_by_another"),
    [(5, 0, False), (9, 6, True), (9, 5, False), (9, 9, True)],
    ids=["the delivery itself", "acknowledged", "gone before that", "long ago"],
)
def test_a_version_is_published_by_the_delivery_that_made_it(offset, base, is_by_another):
    lane = Lane("entries/0", base=base, newest=9)
    (received,) = _received(lane, offset)
    lane.waiting[offset] = received

    made_by = {"entries/0": [range(5, 6)]}
    assert is_published_by_another(received, made_by, {"entries/0": lane}) is is_by_another

    # A version of a lane that another consumer has is published there
    assert is_published_by_another(received, {"entries/1": [range(5, 6)]}, {"entries/0": lane})


def test_invalid_lines_at_one_place_give_letters_with_ids_of_their_own():
    def id_of(content: bytes) -> str:
        envelope = read_message(content, "stdin:1").envelope
        return letter_of(dead_letter(envelope, Reason.INVALID_ENVELOPE, "no JSON")).message_id

    assert len({id_of(each) for each in (b"one", b"two", b"one")}) == 2


@pytest.mark.parametrize("large", ["body", "headers", "type"])
def test_a_letter_of_a_large_message_is_small(large):
    trace, text = {"traceparent": f"00-{'1' * 32}-{'2' * 16}-00"}, '"' * 50_000
    given: Any = {"body": text, "headers": {"a": text}, "type": text}
    fields = {"body": "{}", "type": "Add", large: given[large]}
    fields["headers"] = {**fields.get("headers", {}), **trace}

    letter = letter_of(dead_letter(Envelope("m1", **fields), Reason.UNKNOWN_TYPE, "no handler takes it"))

    assert len(written(letter)) < 2_000
    assert json.loads(letter.body)["message"]["omitted_bytes"] > 50_000
    assert letter.headers == {"reason": "unknown_type", "error": "no handler takes it", **trace}


SOURCES = "nats://here stdout: kafka://here:9092/entries kafka://here:9092?group=g amqp://here azurequeue://127.0.0.1:1"


@pytest.mark.parametrize("url", SOURCES.split())
def test_what_names_no_source_is_refused(url):
    with pytest.raises(UsageError):
        open_source(url)


def test_other_brokers_than_kafka_have_json_only():
    with pytest.raises(UsageError, match="applies only to Kafka"):
        open_source("stdin:", Decoding("cloudevents"))


@pytest.mark.parametrize("url", ["nats://here", "stdin:", "servicebus://here/entries", "module:function"])
def test_what_names_no_target_is_refused(url):
    with pytest.raises(UsageError, match="The target is invalid"):
        open_settlement(url, Topic(), {})


def test_no_secret_of_a_url_is_in_a_name():
    source = open_source("amqp://anna:secret@here/?queue=entries")
    target = open_settlement("kafka://anna:secret@here:9092", source, {})
    assert "secret" not in f"{source.name} {target.name}"


@pytest.mark.parametrize("scheme", ["azurequeue", "servicebus"])
def test_an_invalid_connection_string_is_refused(scheme, monkeypatch):
    monkeypatch.setenv("CONNECTION", "hunter2")

    with pytest.raises(UsageError, match="The connection string is invalid: Connection string is"):
        asyncio.run(open_source(f"{scheme}:///q?connection=env:CONNECTION").open(Topic()))  # type: ignore[arg-type]


@pytest.mark.parametrize("scheme", ["amqp", "azurequeue", "servicebus", "kafka"])
@pytest.mark.parametrize(
    "rest", ["anna:hunter2#@here/q", "anna:hunter2@he\u2100re/q", "[hunter2/q", ":hunter2@:x/q"]
)
def test_no_secret_of_a_url_is_in_an_error(scheme, rest):
    with pytest.raises(UsageError) as refused:
        open_source(f"{scheme}://{rest}")
    assert "hunter2" not in "".join(traceback.format_exception(refused.value))


SERVICE_BUS = "servicebus://here.servicebus.windows.net/q"
ACCOUNT = "azurequeue://127.0.0.1:1/q"


@pytest.mark.parametrize(
    ("url", "name"),
    [
        (f"{ACCOUNT}?visibility=soon", "visibility"),
        (f"{ACCOUNT}?prefetch=many", "prefetch"),
        ("amqp://here/?queue=q&prefetch=many", "prefetch"),
        (f"{SERVICE_BUS}?sessions=many", "sessions"),
        ("kafka://here:9092/q?group=g&acks.of.all=1", "acks.of.all"),
        ("kafka://here:9092/q?group=g&session.timeout.ms=9999999", "librdkafka refuses a setting"),
    ],
)
def test_a_wrong_parameter_is_named(url, name):
    with pytest.raises(UsageError, match=name):
        open_source(url)


def test_a_wrong_parameter_of_a_target_is_named():
    with pytest.raises(UsageError, match=r"acks\.of\.all"):
        open_settlement("kafka://here:9092?acks.of.all=1", None, {})
