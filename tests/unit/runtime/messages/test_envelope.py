"""Envelopes: one delivery, its canonical id, and its stored bytes."""

import json
from datetime import UTC, datetime, timedelta, timezone
from functools import reduce
from types import MappingProxyType
from typing import Any
from uuid import UUID

import msgpack
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from runtime.clock import EARLIEST, to_datetime, to_microseconds
from runtime.messages.envelope import (
    Envelope,
    canonical,
    id_key,
    id_text,
    join_ids,
    pack_envelope,
    pack_ids,
    pieces,
    unpack_envelope,
    unpack_ids,
)

# Envelopes: one delivery, with a canonical id and a time in microseconds.


KEY = "7d444840-9dc0-11d1-b245-5ffdce74fad2"


def test_an_id_has_up_to_255_characters():
    for length in (1, 255):
        assert Envelope.of("é" * length, "Rang", "{}").message_id == "é" * length
    for length in (0, 256):
        with pytest.raises(ValueError, match=f"1 to 255 characters, not {length}"):
            Envelope.of("é" * length, "Rang", "{}")


def test_an_id_that_is_no_valid_text_is_refused():
    with pytest.raises(
        ValueError, match=r"^The message id '.*ud800' is invalid Unicode: it contains a lone surrogate\.$"
    ):
        Envelope.of("\ud800", "Rang", "{}")


def test_the_time_is_in_microseconds_whatever_its_zone_and_headers_are_copied():
    moment = datetime(2026, 1, 1, 2, 0, 0, 1, tzinfo=timezone(timedelta(hours=2)))
    headers = {"trace": "t-1"}

    envelope = Envelope.of(KEY.upper(), "Rang", "{}", enqueued_at=moment, headers=headers)
    headers["trace"] = "t-2"

    assert (envelope.message_id, envelope.enqueued_at) == (KEY, 1_767_225_600_000_001)
    assert envelope.headers == {"trace": "t-1"}
    assert Envelope.of("m-1", "Rang", "{}", headers={}).headers is None


@pytest.mark.parametrize("microseconds", [0, 1, -1, 1_767_225_600_000_001, -(10**16)])
def test_times_are_exact_to_the_microsecond(microseconds):
    assert to_microseconds(to_datetime(microseconds)) == microseconds
    assert to_datetime(microseconds).tzinfo is UTC


def test_a_delivery_as_a_line_of_a_log():
    fields: dict[str, Any] = {
        "body": '{"tower":"öst"}',
        "business_id": "öst",
        "sequence": 7,
        "headers": {"trace": "t-1"},
    }
    envelope = Envelope.of("m-1", "Rang", enqueued_at=datetime(2026, 1, 1, tzinfo=UTC), **fields)

    line = json.loads(envelope.to_json())
    packed = json.loads(Envelope.of("m-1", "Rang", b"\x80").to_json())

    assert line == {"message_id": "m-1", "type": "Rang", "enqueued_at": "2026-01-01T00:00:00+00:00", **fields}
    assert packed == {"message_id": "m-1", "type": "Rang", "body": "80"}


# Message ids: a UUID in any spelling is one id, and no text is ever taken for a UUID's bytes.


@pytest.mark.parametrize("form", ["{}", "{{{}}}", "urn:uuid:{}", "URN:UUID:{}"])
def test_every_spelling_of_a_uuid_is_one_id(form):
    for spelling in (KEY, KEY.upper(), KEY.replace("-", ""), KEY.replace("-", "").upper()):
        assert canonical(form.format(spelling) if "-" in spelling else spelling) == KEY


@given(st.uuids())
def test_a_uuid_is_spelled_as_python_spells_it(key):
    assert canonical(str(key).upper()) == str(key)
    assert id_key(str(key)) == key.bytes


@pytest.mark.parametrize(
    "text",
    ["order-7", "Order-7", " " + KEY, KEY + "\n", KEY + "0", KEY[:-1], "x" + KEY, "\u0667" * 32],
)
def test_any_other_text_is_left_as_it_is(text):
    assert canonical(text) == text
    assert id_key(text) == text


@given(st.text(min_size=1))
def test_what_is_canonical_stays_as_it_is(text):
    assert canonical(canonical(text)) == canonical(text)


def test_no_text_equals_the_bytes_of_a_uuid():
    key = UUID("61626364-6566-6768-696a-6b6c6d6e6f70")
    text = key.bytes.decode()

    assert text == "abcdefghijklmnop"
    packed, other = (pack_ids([id_key(each)]) for each in (text, str(key)))
    assert packed != other
    assert unpack_ids(packed) == [text] != unpack_ids(other)
    assert len(other) == 1 + 16


ids = (
    st.uuids().map(str)
    | st.text(min_size=1, max_size=20)
    | st.text("abcdef0123456789", min_size=16, max_size=16)
)


@given(st.lists(ids, min_size=1, max_size=20))
def test_ids_come_back_in_their_order(texts):
    keys = [id_key(canonical(text)) for text in texts]

    back = unpack_ids(pack_ids(keys))

    assert back == keys
    assert [id_text(key) for key in back] == [canonical(text) for text in texts]


runs = st.lists(st.uuids().map(str), max_size=3) | st.lists(ids, max_size=3)


@given(st.lists(runs, max_size=10))
def test_ids_of_runs_come_back_one_after_another(runs_of_texts):
    keys = [[id_key(canonical(text)) for text in texts] for texts in runs_of_texts]

    joined = reduce(join_ids, map(pack_ids, keys), pack_ids([]))

    assert joined == pack_ids([key for each in keys for key in each])


# A delivery comes out of its stored bytes as it went in, valid or not.


HALF = "\ud83d"
"""Half of a character: UTF-8 has no bytes for it."""

texts = st.text(st.characters(codec=None) | st.sampled_from([HALF, "\0", "é", "😀"]), max_size=20)
numbers = st.none() | st.integers(-(2**70), 2**70)
deliveries = st.builds(
    Envelope,
    st.none() | texts,
    st.none() | texts,
    st.none() | texts | st.binary(max_size=20),
    st.none() | texts,
    numbers,
    numbers,
    st.none() | st.dictionaries(texts, st.none() | texts, max_size=3),
)


@given(deliveries)
@example(Envelope("m-1", "Rang", "{}", enqueued_at=EARLIEST - 1))
@example(Envelope("m-1", "Rang", b"\x80", "", 2**63 - 1, 1_767_268_800_123_456, {}))
@example(Envelope(HALF, HALF, HALF, HALF, 2**64, -(2**63) - 1, {HALF: HALF}))
@example(Envelope("m-1", "Rang", "{}", headers=MappingProxyType({"trace": "t-1"})))
def test_nothing_that_an_envelope_holds_is_lost(delivery):
    unpacked = unpack_envelope(pack_envelope(delivery))

    assert unpacked == delivery
    assert pack_envelope(unpacked) == pack_envelope(delivery)


def test_what_is_not_given_takes_no_bytes():
    assert msgpack.unpackb(pack_envelope(Envelope("m-1", "Rang", "{}"))) == ["m-1", "Rang", "{}"]


def test_a_header_that_is_no_text_becomes_text_when_msgpack_has_nothing_like_it():
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    headers: Any = {"sent": moment, "tries": 3}
    delivery = Envelope("m-1", "Rang", "{}", headers=headers)

    assert unpack_envelope(pack_envelope(delivery)).headers == {"sent": repr(moment), "tries": 3}


def test_bytes_of_something_else_are_refused():
    with pytest.raises(ValueError, match="extension type 7"):
        unpack_envelope(msgpack.packb([msgpack.ExtType(7, b"x")]))


# Values of equal size that were joined are told apart again, unless one of them is not whole.


@given(values=st.lists(st.binary(min_size=3, max_size=3)))
def test_joined_values_are_told_apart(values):
    assert pieces(b"".join(values), 3) == values


def test_bytes_that_are_no_whole_values_are_refused():
    with pytest.raises(ValueError, match="7 bytes are not a multiple of 3"):
        pieces(b"1234567", 3)


@pytest.mark.parametrize(
    ("body", "kept"),
    [
        (b' {"name": "\xc3\xa9"}', ' {"name": "\u00e9"}'),
        (msgpack.packb({"name": "\u00e9"}), msgpack.packb({"name": "\u00e9"})),
        (b'{"name": "\xe9"}', b'{"name": "\xe9"}'),
    ],
)
def test_bytes_of_json_are_text(body, kept):
    assert Envelope.of("1", "Rang", body).body == kept
