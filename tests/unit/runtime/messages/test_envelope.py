"""Envelopes: one delivery, with a canonical id and a time in microseconds."""

import json
from datetime import UTC, datetime, timedelta, timezone

import pytest

from runtime.clock import to_datetime, to_microseconds
from runtime.messages.envelope import Envelope

KEY = "7d444840-9dc0-11d1-b245-5ffdce74fad2"


def test_the_id_is_made_canonical():
    assert Envelope.of(KEY.upper(), "Rang", "{}").message_id == KEY


@pytest.mark.parametrize("length", [1, 255])
def test_an_id_has_up_to_255_characters(length):
    assert Envelope.of("é" * length, "Rang", "{}").message_id == "é" * length


@pytest.mark.parametrize("length", [0, 256])
def test_an_id_of_another_length_is_refused(length):
    with pytest.raises(ValueError, match=f"^A message id has 1 to 255 characters, not {length}.$"):
        Envelope.of("é" * length, "Rang", "{}")


def test_an_id_that_is_no_valid_text_is_refused():
    with pytest.raises(ValueError, match=r"^A message id is text, and '.*ud800' holds half a character.$"):
        Envelope.of("\ud800", "Rang", "{}")


def test_the_time_is_in_microseconds_whatever_its_zone():
    moment = datetime(2026, 1, 1, 2, 0, 0, 1, tzinfo=timezone(timedelta(hours=2)))

    assert Envelope.of("m-1", "Rang", "{}", enqueued_at=moment).enqueued_at == 1_767_225_600_000_001


@pytest.mark.parametrize("microseconds", [0, 1, -1, 1_767_225_600_000_001, -(10**16)])
def test_times_are_exact_to_the_microsecond(microseconds):
    assert to_microseconds(to_datetime(microseconds)) == microseconds
    assert to_datetime(microseconds).tzinfo is UTC


def test_no_headers_are_none_at_all():
    assert Envelope.of("m-1", "Rang", "{}", headers={}).headers is None


def test_headers_do_not_follow_changes_of_what_they_were_made_of():
    headers = {"trace": "t-1"}
    envelope = Envelope.of("m-1", "Rang", "{}", headers=headers)

    headers["trace"] = "t-2"

    assert envelope.headers == {"trace": "t-1"}


def test_a_delivery_as_a_line_of_a_log():
    envelope = Envelope.of(
        "m-1",
        "Rang",
        '{"tower":"öst"}',
        business_id="öst",
        sequence=7,
        enqueued_at=datetime(2026, 1, 1, tzinfo=UTC),
        headers={"trace": "t-1"},
    )

    assert json.loads(envelope.to_json()) == {
        "message_id": "m-1",
        "type": "Rang",
        "body": '{"tower":"öst"}',
        "business_id": "öst",
        "sequence": 7,
        "enqueued_at": "2026-01-01T00:00:00+00:00",
        "headers": {"trace": "t-1"},
    }


def test_a_delivery_with_a_packed_body_as_a_line_of_a_log():
    line = json.loads(Envelope.of("m-1", "Rang", b"\x80").to_json())

    assert line == {"message_id": "m-1", "type": "Rang", "body": "80"}
