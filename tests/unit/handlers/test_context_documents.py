"""Documents are asked for by a handler, collected by its context, and recorded as references."""

import pytest

from handlers import CaptureError, Context, DocumentError, DocumentReference
from handlers import context as limits
from handlers.guard import guarded
from handlers.testing import HandlerSpec
from samples.invoices import app
from samples.invoices.handlers import Invoices, PlaceOrder


def context(message_id: str = "m-1", **given) -> Context:
    return Context("Desk", "r-1", message_id, 0, **given)


def store(given: Context, content=b"content", media_type="text/plain", name="a.txt") -> DocumentReference:
    return given.store_document(content, media_type=media_type, name=name)


def test_the_reference_tells_name_hash_size_and_type_and_the_content_is_collected():
    given = context(place="Desk/r-1/attempt-1")
    reference = store(given)
    assert reference == DocumentReference(
        name="Desk/r-1/attempt-1-a.txt",
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
