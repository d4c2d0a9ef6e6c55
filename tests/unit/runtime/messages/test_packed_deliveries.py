"""A delivery comes out of its stored bytes as it went in, valid or not."""

from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

import msgpack
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from runtime.clock import EARLIEST
from runtime.messages.envelope import Envelope, pack_envelope, unpack_envelope

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
def test_nothing_that_an_envelope_holds_is_lost(delivery):
    unpacked = unpack_envelope(pack_envelope(delivery))

    assert unpacked == delivery
    assert pack_envelope(unpacked) == pack_envelope(delivery)


def test_what_is_not_given_takes_no_bytes():
    assert msgpack.unpackb(pack_envelope(Envelope("m-1", "Rang", "{}"))) == ["m-1", "Rang", "{}"]


def test_headers_may_be_any_mapping():
    delivery = Envelope("m-1", "Rang", "{}", headers=MappingProxyType({"trace": "t-1"}))

    assert unpack_envelope(pack_envelope(delivery)).headers == {"trace": "t-1"}


def test_a_header_that_is_no_text_becomes_text_when_msgpack_has_nothing_like_it():
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    headers: Any = {"sent": moment, "tries": 3}
    delivery = Envelope("m-1", "Rang", "{}", headers=headers)

    assert unpack_envelope(pack_envelope(delivery)).headers == {"sent": repr(moment), "tries": 3}


def test_bytes_of_something_else_are_refused():
    with pytest.raises(ValueError, match="extension type 7"):
        unpack_envelope(msgpack.packb([msgpack.ExtType(7, b"x")]))
