"""What a handler is told: the ids, the headers and the time of the message."""

from datetime import UTC, datetime, timedelta

import pytest

from handlers import Context


def test_ids_are_those_of_the_message_and_its_business_object():
    context = Context("Bell", "east", "m-1", 0)

    assert (context.message_id, context.business_id) == ("m-1", "east")


def test_now_is_in_utc_and_has_microseconds():
    context = Context("Bell", "east", "m-1", 1_767_225_600_123_456)

    assert context.now == datetime(2026, 1, 1, 0, 0, 0, 123_456, tzinfo=UTC)
    assert context.now.utcoffset() == timedelta(0)


def test_now_stands_still():
    context = Context("Bell", "east", "m-1", 7)

    assert context.now == context.now


@pytest.mark.parametrize("microseconds", [0, 1, 999_999, 1_767_225_600_000_001, 253_402_300_799_999_999])
def test_now_is_exact_to_the_microsecond(microseconds):
    now = Context("Bell", "east", "m-1", microseconds).now

    assert (now - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) == microseconds


def test_headers_are_read_only():
    context = Context("Bell", "east", "m-1", 0, {"trace": "t-1"})

    with pytest.raises(TypeError):
        context.headers["trace"] = "t-2"  # type: ignore[index]

    assert context.headers == {"trace": "t-1"}


def test_headers_do_not_follow_changes_of_what_they_were_made_of():
    given = {"trace": "t-1"}
    seen = Context("Bell", "east", "m-1", 0, given).headers

    given["trace"] = "t-2"

    assert seen == {"trace": "t-1"}


@pytest.mark.parametrize("headers", [None, {}])
def test_a_message_without_headers_has_empty_ones(headers):
    context = Context("Bell", "east", "m-1", 0, headers)

    assert context.headers == {}
    with pytest.raises(TypeError):
        context.headers["trace"] = "t-1"  # type: ignore[index]


@pytest.mark.parametrize("name", ["message_id", "business_id", "headers", "now", "random"])
def test_nothing_of_it_can_be_set(name):
    with pytest.raises(AttributeError):
        setattr(Context("Bell", "east", "m-1", 0), name, None)
