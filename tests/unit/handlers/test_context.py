"""The context: what a handler reads, captures and publishes, and the documents that it stores."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given as each
from hypothesis import strategies as st

from handlers import (
    CaptureError,
    CodecError,
    Context,
    DocumentError,
    DocumentReference,
    Message,
    PublishError,
)
from handlers import context as limits
from handlers.context import OutputRoom
from handlers.errors import OutputsTooLargeError
from handlers.guard import guarded
from samples.invoices import PlaceOrder, app


class Rang(Message, name="BellRang"):
    times: int = 1
    listeners: frozenset[str] = frozenset()


def context(
    message_id: str = "m-1", now: int = 0, headers: Mapping[str, str] | None = None, **more: Any
) -> Context:
    return Context("Bell", "east", message_id, now, headers, **more)


@pytest.mark.parametrize("microseconds", [0, 1, 1_767_225_600_000_001, 253_402_300_799_999_999])
def test_now_is_exact_to_the_microsecond_and_stands_still(microseconds):
    told = context(now=microseconds)

    assert (told.now - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) == microseconds
    assert (told.now, told.now.tzinfo) == (told.now, UTC)


@pytest.mark.parametrize("headers", [None, {}, {"trace": "t-1"}])
def test_what_it_tells_can_be_neither_set_nor_changed_from_outside(headers):
    told = context(headers=headers)
    expected, seen = dict(headers or {}), told.headers
    if headers:
        headers["trace"] = "t-2"

    with pytest.raises(TypeError):
        told.headers["trace"] = "t-2"  # type: ignore[index]
    for name in ("message_id", "business_id", "headers", "now", "random"):
        with pytest.raises(AttributeError):
            setattr(told, name, None)
    assert (told.message_id, told.business_id, seen) == ("m-1", "east", expected)


# Captured values: the function is called once, and a replay gets the record.


def not_called():
    pytest.fail("a replay must not look at the environment again")


integers, texts = st.integers(-(2**63), 2**64 - 1), st.text()
plain = st.recursive(
    st.none() | st.booleans() | integers | st.floats(allow_nan=False) | texts | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(texts | st.integers(0, 99), inner, max_size=3)
    ),
    max_leaves=8,
)


@each(plain)
def test_a_replay_gets_the_value_that_was_captured_first(value):
    first = context()
    captured = first.capture("weather", lambda: value)

    replayed = context(recorded=first.captured).capture("weather", not_called)

    assert captured == replayed == value


def test_the_first_run_gets_the_value_as_a_replay_will():
    # Through the codec on the first run too: a tuple that a replay gets as a list is a list at once.
    first = context()

    assert first.capture("wind", lambda: (1, (2, 3))) == [1, [2, 3]]
    assert first.capture("sound", lambda: bytearray(b"x")) == b"x"


def test_values_are_recorded_by_name_as_they_were_when_they_were_captured():
    first = context()
    found = {"degrees": 20}
    captured = first.capture("weather", lambda: found)
    first.capture("rain", lambda: 2)

    found["degrees"] = captured["degrees"] = 99

    replay = context(recorded=first.captured)
    assert replay.capture("rain", not_called) == 2
    assert replay.capture("weather", not_called) == {"degrees": 20}
    assert replay.captured == first.captured
    for used in (first, replay):
        with pytest.raises(CaptureError, match=r"^The handler captures 'rain' twice: use another name"):
            used.capture("rain", lambda: 2)


NOT_PLAIN = [object(), {1, 2}, Decimal(1), datetime(2026, 1, 1, tzinfo=UTC), 2**64, -(2**63) - 1, {"a": object()},
             {(1, 2): 3}, "\ud800"]  # fmt: skip
UNRECORDED = r"^A replay captures 'rain', which was not captured when the message was first handled"


@pytest.mark.parametrize(
    ("name", "value", "recorded", "sentence"),
    [
        *[("wind", value, None, "^The value captured as 'wind' cannot be recorded: ") for value in NOT_PLAIN],
        *[(name, 1, None, r"^capture\(\) takes a name .*, valid as UTF-8, not ") for name in ("\ud800", 7, None, b"x")],
        *[("rain", 1, recorded, UNRECORDED) for recorded in ({"wind": b"\x01"}, {})],
    ],
)  # fmt: skip
def test_what_cannot_be_recorded_or_was_not_recorded_is_an_error(name, value, recorded, sentence):
    with pytest.raises(CaptureError, match=sentence):
        context(recorded=recorded).capture(name, lambda: value)


def test_an_error_of_the_function_is_the_handlers_and_records_nothing():
    first = context()

    with pytest.raises(ZeroDivisionError):
        first.capture("wind", lambda: 1 // 0)

    assert first.captured == {}


# Published messages.


def test_outputs_stand_in_their_order_with_name_body_and_the_headers_that_were_given():
    publishing, headers = context(headers={"trace": "t-1"}), {"colour": "red"}

    publishing.publish(Rang(times=2), headers=headers)
    headers["colour"] = "blue"
    publishing.publish(Rang(listeners=frozenset({"b", "a"})), headers=publishing.headers)
    publishing.publish(Rang())

    assert [(output.type, output.body, output.headers) for output in publishing.published] == [
        ("BellRang", b'{"times":2,"listeners":[]}', {"colour": "red"}),
        ("BellRang", b'{"times":1,"listeners":["a","b"]}', {"trace": "t-1"}),
        ("BellRang", b'{"times":1,"listeners":[]}', {}),
    ]


NO_TEXT = "^The headers of a BellRang must be str, valid as UTF-8, not "
INVALID: Any = Rang.model_construct(times="often", listeners=frozenset())  # type: ignore[arg-type] # not validated


@pytest.mark.parametrize(
    ("message", "headers", "error", "sentence"),
    [
        *[(Rang(), headers, PublishError, NO_TEXT) for headers in ({"n": 1}, {1: "n"}, {"n": None}, {"n": "\ud800"})],
        *[(Rang().model_copy(update=update), None, CodecError, "^Rang")
          for update in ({"tmies": 3}, {"times": 0.5}, {"listeners": ("east", 3)})],
        (INVALID, None, CodecError, "^Rang"),
        ("BellRang", None, PublishError, r"^publish\(\) takes a Message, not a str.$"),
    ],
)  # fmt: skip
def test_what_cannot_be_published_is_an_error_and_takes_no_id(message, headers, error, sentence):
    publishing, other = context(), context()

    with pytest.raises(error, match=sentence):
        publishing.publish(message, headers=headers)

    publishing.publish(Rang())
    other.publish(Rang())
    assert publishing.published == other.published


@pytest.mark.parametrize(("room", "fitting"), [(OutputRoom(2, 999), 2), (OutputRoom(9, 50), 1)])
def test_outputs_over_the_limits_are_an_error_that_is_kept(room, fitting):
    publishing = context(room=room)
    for _ in range(fitting):
        publishing.publish(Rang(), headers={"a": "b"})

    with pytest.raises(OutputsTooLargeError, match="exceeds the limit of outputs: "):
        publishing.publish(Rang(), headers={"a": "b"})

    assert (len(publishing.published), type(publishing.exceeded)) == (fitting, OutputsTooLargeError)


# Documents.


def store(given: Context, content=b"content", media_type="text/plain", name="a.txt") -> DocumentReference:
    return given.store_document(content, media_type=media_type, name=name)


def test_the_reference_tells_name_hash_size_and_type_and_the_content_is_collected():
    given = context(place="Bell/east/attempt-1")
    reference = store(given)
    assert reference == DocumentReference(
        name="Bell/east/attempt-1-a.txt",
        sha256="ed7002b439e9ac845f22357d822bac1444730fbdb6016d3ec9432297b9ec9f73",
        size=7,
        media_type="text/plain",
    )
    assert given.documents == [(reference, b"content")]
    assert store(context()).name == store(context()).name != store(context("m-2")).name


def test_a_replay_returns_the_record_and_makes_and_collects_nothing():
    first = context(place="first")
    reference = store(first)

    replayed = context(place="second", recorded=first.captured)

    assert store(replayed, not_called) == reference
    assert replayed.documents == []
    with pytest.raises(CaptureError, match=r"captures 'document a\.txt' twice"):
        store(first)
    with pytest.raises(CaptureError, match="was not captured when the message was first handled"):
        store(replayed, name="b.txt")


NAMES = ("", ".", "..", "a/b", "a\\b", "a\nb", "x" * 101, "é" * 51, "\ud800", 7)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        *[({"name": name}, "plain file name") for name in NAMES],
        ({"media_type": ""}, "media type such as"),
        ({"content": lambda: "text"}, r"takes bytes for .*a\.txt, not a str"),
    ],
)
def test_a_document_has_a_plain_name_a_media_type_and_bytes(given, sentence):
    with pytest.raises(DocumentError, match=sentence):
        store(context(), **given)


def test_the_documents_of_a_message_are_limited_in_number_and_in_bytes(monkeypatch):
    monkeypatch.setattr(limits, "MAX_DOCUMENTS", 2)
    given = context()
    for name in "ab":
        store(given, name=name)
    with pytest.raises(DocumentError, match="stores 3 documents"):
        store(given, name="c")
    monkeypatch.setattr(limits, "MAX_BYTES", 6)
    with pytest.raises(DocumentError, match="with 7 bytes; for one message it can store 2 with 6"):
        store(context())


def test_a_function_may_look_at_the_clock_under_guard_too():
    order = PlaceOrder(customer="Ada", item="A book", price="12.90")  # type: ignore[arg-type] # read by pydantic
    handler = guarded(app).handlers["Invoices"]
    route = handler.routes["PlaceOrder"]
    given = context()
    state = route.revisions[route.newest](handler.codec.reread(handler.initial), order, given)
    (document,) = given.documents
    assert document.content.startswith(b"%PDF-")
    assert state.newest == document.reference  # type: ignore[attr-defined] # of the invoices
