"""The context: what a handler is told, what it captures and publishes, and the documents that it asks for."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal

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
    State,
)
from handlers import context as limits
from handlers.guard import guarded
from handlers.testing import HandlerSpec
from samples.invoices import app
from samples.invoices.handlers import Invoices, PlaceOrder


class Rang(Message, name="BellRang"):
    times: int = 1
    listeners: frozenset[str] = frozenset()


def context(
    message_id: str = "m-1",
    now: int = 0,
    headers: Mapping[str, str] | None = None,
    *,
    recorded: Mapping[str, bytes] | None = None,
    place: str | None = None,
) -> Context:
    return Context("Bell", "east", message_id, now, headers, recorded=recorded, place=place)


# What a handler is told: the ids, the headers and the time of the message.


def test_ids_are_those_of_the_message_and_its_business_object():
    given = context()

    assert (given.message_id, given.business_id) == ("m-1", "east")


def test_now_is_in_utc_and_has_microseconds():
    given = context(now=1_767_225_600_123_456)

    assert given.now == datetime(2026, 1, 1, 0, 0, 0, 123_456, tzinfo=UTC)
    assert given.now.utcoffset() == timedelta(0)


def test_now_stands_still():
    given = context(now=7)

    assert given.now == given.now


@pytest.mark.parametrize("microseconds", [0, 1, 999_999, 1_767_225_600_000_001, 253_402_300_799_999_999])
def test_now_is_exact_to_the_microsecond(microseconds):
    now = context(now=microseconds).now

    assert (now - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) == microseconds


def test_headers_are_read_only():
    given = context(headers={"trace": "t-1"})

    with pytest.raises(TypeError):
        given.headers["trace"] = "t-2"  # type: ignore[index]

    assert given.headers == {"trace": "t-1"}


def test_headers_do_not_follow_changes_of_what_they_were_made_of():
    headers = {"trace": "t-1"}
    seen = context(headers=headers).headers

    headers["trace"] = "t-2"

    assert seen == {"trace": "t-1"}


@pytest.mark.parametrize("headers", [None, {}])
def test_a_message_without_headers_has_empty_ones(headers):
    given = context(headers=headers)

    assert given.headers == {}
    with pytest.raises(TypeError):
        given.headers["trace"] = "t-1"  # type: ignore[index]


@pytest.mark.parametrize("name", ["message_id", "business_id", "headers", "now", "random"])
def test_nothing_of_it_can_be_set(name):
    with pytest.raises(AttributeError):
        setattr(context(), name, None)


# A captured value is had once and recorded; a replay gets what was recorded.


def not_called():
    pytest.fail("a replay must not look at the environment again")


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text() | st.integers(0, 99), inner, max_size=3)
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


def test_a_value_that_is_changed_afterwards_is_not_changed_in_the_record():
    first = context()
    found = {"degrees": 20}
    captured = first.capture("weather", lambda: found)

    found["degrees"] = captured["degrees"] = 99

    assert context(recorded=first.captured).capture("weather", not_called) == {"degrees": 20}


def test_several_names_are_recorded_apart():
    first = context()
    first.capture("wind", lambda: 1)
    first.capture("rain", lambda: 2)

    replay = context(recorded=first.captured)

    assert replay.capture("rain", not_called) == 2
    assert replay.capture("wind", not_called) == 1
    assert replay.captured == first.captured


@pytest.mark.parametrize("recorded", [None, {"wind": b"\x01"}])
def test_a_name_used_twice_is_an_error(recorded):
    used = context(recorded=recorded)
    used.capture("wind", lambda: 1)

    with pytest.raises(
        CaptureError, match=r"^The handler captures 'wind' twice: use another name for each value.$"
    ):
        used.capture("wind", lambda: 2)


@pytest.mark.parametrize(
    "value",
    [
        object(),
        {1, 2},
        Decimal(1),
        datetime(2026, 1, 1, tzinfo=UTC),
        2**64,
        -(2**63) - 1,
        {"a": object()},
        {(1, 2): 3},
        "\ud800",
    ],
)
def test_what_is_no_plain_data_is_an_error_on_the_first_run(value):
    with pytest.raises(CaptureError, match=r"^The value captured as 'wind' cannot be recorded: "):
        context().capture("wind", lambda: value)


@pytest.mark.parametrize("name", ["\ud800", 7, None, b"wind"])
def test_a_name_that_cannot_be_recorded_is_an_error(name):
    with pytest.raises(CaptureError, match=r"^capture\(\) takes a name that is a str, valid as UTF-8, not "):
        context().capture(name, lambda: 1)


def test_a_replay_that_asks_for_what_was_not_recorded_is_an_error():
    with pytest.raises(
        CaptureError,
        match=r"^A replay captures 'rain', which was not captured when the message was first handled: ",
    ):
        context(recorded={"wind": b"\x01"}).capture("rain", not_called)


def test_a_replay_of_a_run_that_captured_nothing_looks_at_nothing():
    with pytest.raises(CaptureError, match="was not captured"):
        context(recorded={}).capture("wind", not_called)


def test_an_error_of_the_function_is_the_handlers_and_records_nothing():
    first = context()

    with pytest.raises(ZeroDivisionError):
        first.capture("wind", lambda: 1 // 0)

    assert first.captured == {}


# Publishing: a message, with text for headers, in the order in which the handler gave it.


def test_outputs_stand_in_their_order_with_name_and_body():
    publishing = context()

    publishing.publish(Rang(times=2))
    publishing.publish(Rang(listeners=frozenset({"b", "a"})))

    assert [(output.type, output.body) for output in publishing.published] == [
        ("BellRang", b'{"times":2,"listeners":[]}'),
        ("BellRang", b'{"times":1,"listeners":["a","b"]}'),
    ]


def test_headers_go_out_with_the_message():
    publishing = context(headers={"trace": "t-1"})

    publishing.publish(Rang(), headers={"colour": "red"})
    publishing.publish(Rang(), headers=publishing.headers)
    publishing.publish(Rang())

    assert [output.headers for output in publishing.published] == [{"colour": "red"}, {"trace": "t-1"}, {}]


def test_headers_that_are_changed_afterwards_go_out_as_they_were():
    publishing = context()
    headers = {"colour": "red"}
    publishing.publish(Rang(), headers=headers)

    headers["colour"] = "blue"

    assert publishing.published[0].headers == {"colour": "red"}


@pytest.mark.parametrize("thing", [State(), "Rang", None, Rang])
def test_what_is_no_message_is_an_error(thing):
    with pytest.raises(PublishError, match=r"^publish\(\) takes a Message, not a "):
        context().publish(thing)


@pytest.mark.parametrize("headers", [{"times": 1}, {1: "one"}, {"none": None}, {"half": "\ud800"}])
def test_headers_that_are_no_text_are_an_error(headers):
    publishing = context()

    with pytest.raises(PublishError, match=r"^The headers of a BellRang must be str, valid as UTF-8, not "):
        publishing.publish(Rang(), headers=headers)

    assert publishing.published == []


def test_a_message_that_cannot_be_encoded_is_an_error_and_takes_no_id():
    publishing = context()

    with pytest.raises(CodecError, match=r"^Rang has no field tmies.$"):
        publishing.publish(Rang().model_copy(update={"tmies": 3}))
    publishing.publish(Rang())

    other = context()
    other.publish(Rang())
    assert publishing.published == other.published


class Counted(Message):
    times: int = 0
    towers: tuple[str, ...] = ()


@pytest.mark.parametrize(
    "message",
    [
        Counted().model_copy(update={"times": 0.5}),
        Counted.model_construct(times="often", towers=()),  # type: ignore[arg-type] # it validates nothing
        Counted().model_copy(update={"towers": ("east", 3)}),
    ],
)
def test_a_message_that_was_not_validated_is_an_error(message):
    with pytest.raises(CodecError):
        context().publish(message)


# Documents are asked for by a handler, collected by its context, and recorded as references.


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
    assert [(document.reference, document.content) for document in given.documents] == [
        (reference, b"content")
    ]


def test_a_replay_returns_the_record_and_makes_and_collects_nothing():
    first = context(place="first")
    reference = store(first)

    def fail() -> bytes:
        raise AssertionError("A replay renders nothing.")

    replayed = context(place="second", recorded=first.captured)
    assert store(replayed, fail) == reference
    assert replayed.documents == []


def test_a_replay_that_stores_another_document_than_was_recorded_fails():
    first = context()
    store(first)
    with pytest.raises(CaptureError, match="was not captured when the message was first handled"):
        store(context(recorded=first.captured), name="b.txt")


def test_without_a_place_names_are_derived_from_the_message():
    assert store(context()).name == store(context()).name != store(context("m-2")).name


def test_a_name_is_used_once():
    given = context()
    store(given)
    with pytest.raises(CaptureError, match=r"captures 'document a\.txt' twice"):
        store(given)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\\b", "a\nb", "x" * 101, "é" * 51, "\ud800", 7])
def test_a_name_is_a_plain_file_name(name):
    with pytest.raises(DocumentError, match="plain file name"):
        store(context(), name=name)


def test_a_media_type_is_plain_text():
    with pytest.raises(DocumentError, match="media type such as"):
        store(context(), media_type="")


def test_content_is_bytes():
    with pytest.raises(DocumentError, match=r"takes bytes, not a str: .*a\.txt"):
        store(context(), lambda: "text")


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


def test_a_specification_of_a_handler_needs_no_store():
    order = PlaceOrder(customer="Ada", item="A book", price="12.90")  # type: ignore[arg-type] # read by pydantic
    told = {"name": "n", "sha256": "0" * 64, "size": 1, "media_type": "application/pdf"}
    handled = HandlerSpec(Invoices).capturing(**{"document invoice.pdf": told}).when(order)
    assert handled.state.newest == DocumentReference(**told)  # type: ignore[arg-type]
