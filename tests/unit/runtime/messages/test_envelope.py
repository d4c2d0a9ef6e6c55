"""Envelopes: one delivery, its canonical id, its stored bytes, and the fingerprint that all its copies share."""

import json
from datetime import UTC, datetime, timedelta, timezone
from functools import reduce
from itertools import chain
from types import MappingProxyType
from typing import Any
from uuid import UUID

import msgpack
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from runtime.clock import EARLIEST, to_datetime, to_microseconds
from runtime.messages.envelope import (
    SIZE,
    Envelope,
    canonical,
    fingerprint,
    id_key,
    id_text,
    join_ids,
    pack_envelope,
    pack_ids,
    unpack_envelope,
    unpack_ids,
)

KEY = "7d444840-9dc0-11d1-b245-5ffdce74fad2"


def test_an_id_is_text_of_up_to_255_characters():
    for length in (1, 255):
        assert Envelope.of("é" * length, "Rang", "{}").message_id == "é" * length
    for length in (0, 256):
        with pytest.raises(ValueError, match=f"1 to 255 characters, not {length}"):
            Envelope.of("é" * length, "Rang", "{}")
    with pytest.raises(
        ValueError, match=r"^The message id '.*ud800' is invalid Unicode: it contains a lone surrogate"
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


@pytest.mark.parametrize(
    "text",
    ["order-7", "Order-7", " " + KEY, KEY + "\n", KEY + "0", KEY[:-1], "x" + KEY, "\u0667" * 32],
)
def test_any_other_text_is_left_as_it_is(text):
    assert canonical(text) == text
    assert id_key(text) == text


def test_no_text_equals_the_bytes_of_a_uuid():
    key = UUID("61626364-6566-6768-696a-6b6c6d6e6f70")

    packed, other = (pack_ids([id_key(each)]) for each in (key.bytes.decode(), str(key)))

    assert unpack_ids(packed) == ["abcdefghijklmnop"]
    assert unpack_ids(other) == [key.bytes]
    assert len(other) == 1 + 16


uuids = st.uuids().map(lambda each: str(each).upper())
ids = uuids | st.text(min_size=1, max_size=20) | st.text("abcdef0123456789", min_size=16, max_size=16)


@given(st.lists(st.lists(uuids, max_size=3) | st.lists(ids, max_size=3), max_size=10))
def test_ids_of_runs_come_back_one_after_another(texts_of_runs):
    texts = [[canonical(each) for each in texts] for texts in texts_of_runs]
    keys = [list(map(id_key, each)) for each in texts]

    joined = reduce(join_ids, map(pack_ids, keys), pack_ids([]))

    assert joined == pack_ids([*chain.from_iterable(keys)])
    assert list(map(id_text, unpack_ids(joined))) == [*chain.from_iterable(texts)]


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


# Copies of a message have one fingerprint however their bodies are spelled. Other messages have another.


@pytest.mark.parametrize(
    ("body", "copy"),
    [
        ('{"a":1,"b":2}', '{"b":2,"a":1}'),
        ('{"a":1}', ' {\n"a" : 1\t} '),
        ('{"a":100.0}', '{"a":1e2}'),
        ('{"a":100.0}', '{"a":1.0E+2}'),
        ('{"a":0}', '{"a":-0}'),
        ('{"a":NaN}', '{"a": NaN}'),
        ('{"a":1e400}', '{"a":Infinity}'),
        ('{"a":0.5}', '{"a":5e-1}'),
        ('{"a":"ä/"}', '{"a":"\\u00e4\\/"}'),
        ('{"a":{"y":1,"x":[1,2]}}', '{"a":{"x":[1,2],"y":1}}'),
        ('{"a":1,"a":2}', '{"a":2}'),
        (f'{{"a":{2**70}}}', f'{{"a": {2**70}}}'),
        (f'{{"b":{2**70},"a":[{{"d":1,"c":2}}]}}', f'{{"a":[{{"c":2,"d":1}}],"b":{2**70}}}'),
    ],
)
def test_other_spellings_of_one_body_have_one_fingerprint(body, copy):
    assert fingerprint("Rang", body) == fingerprint("Rang", copy)


@pytest.mark.parametrize(
    ("body", "other"),
    [
        ('{"a":1}', '{"a":2}'),
        ('{"a":1}', '{"b":1}'),
        ('{"a":1}', '{"a":"1"}'),
        ('{"a":1}', '{"a":true}'),
        ('{"a":0}', '{"a":false}'),
        ('{"a":null}', "{}"),
        ('{"a":null}', '{"a":"null"}'),
        ('{"a":[1,2]}', '{"a":[2,1]}'),
        ('{"a":[1,[2]]}', '{"a":[[1],2]}'),
        ('{"a":{"b":1}}', '{"a":1,"b":1}'),
        ('{"a":1.5}', '{"a":1.25}'),
        ('{"a":1}', '{"a":1.0}'),
        ('{"a":0.0}', '{"a":-0.0}'),
        (f'{{"a":{2**70}}}', f'{{"a":{float(2**70)}}}'),
        (f'{{"a":{2**63}}}', f'{{"a":{2**63 + 1}}}'),
        (f'{{"a":{2**64}}}', f'{{"a":{2**64 + 1}}}'),
        (f'{{"a":{-(2**63)}}}', f'{{"a":{-(2**63) - 1}}}'),
        ('{"a":"x"}', '{"a":"X"}'),
        (f'{{"a":{2**70}}}', f'{{"a":{2**70 + 1}}}'),
        (f'{{"a":{2**70}}}', f'{{"a":"{2**70}"}}'),
        (f'{{"a":{2**70}}}', f'{{"a":["integer","{2**70}"]}}'),
        (f'{{"a":{2**63}}}', f'{{"a":{-(2**63)}}}'),
        ('{"a":NaN}', '{"a":Infinity}'),
        ('["a"]', '"a"'),
        # What was sent counts: a class that gets another default must not turn copies into other messages.
        ('{"position":0}', "{}"),
    ],
)
def test_other_bodies_have_other_fingerprints(body, other):
    assert fingerprint("Rang", body) != fingerprint("Rang", other)


def test_a_fingerprint_has_16_bytes_that_never_change_in_json_and_msgpack():
    packed = msgpack.packb({"times": 3, "tower": "east"})
    assert SIZE == 16
    assert fingerprint("Rang", packed, packed=True).hex() == "54b73fbd87bffba88eb7f51f81207fde"
    assert fingerprint("Rang", '{"tower":"east","times":3}').hex() == "54b73fbd87bffba88eb7f51f81207fde"
    assert fingerprint("Rang", "{}") != fingerprint("Struck", "{}")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=12,
)


@given(json_values, st.randoms(use_true_random=False))
def test_neither_the_order_of_keys_nor_spaces_count(value, chance):
    def shuffled(part):
        if isinstance(part, dict):
            keys = list(part)
            chance.shuffle(keys)
            return {key: shuffled(part[key]) for key in keys}
        return [shuffled(item) for item in part] if isinstance(part, list) else part

    body = json.dumps(value, separators=(",", ":"))
    copy = json.dumps(shuffled(value), indent=1, ensure_ascii=False)

    assert fingerprint("Rang", body) == fingerprint("Rang", copy)


@pytest.mark.parametrize(
    "body",
    [
        *("", "{", '{"a":}', "{'a':1}", '{"a":1}}', "[" * 1000 + "]" * 1000),
        *(b"", b"\x81", b"\xc1", b"\x81\xa1a\x01\x01", b"\x91" * 600 + b"\xc0", b"\x91" * 3000),
    ],
)
def test_a_body_that_does_not_parse_or_nests_too_deep_is_a_value_error(body):
    with pytest.raises((ValueError, msgpack.UnpackException)):
        fingerprint("Rang", body, packed=isinstance(body, bytes))
