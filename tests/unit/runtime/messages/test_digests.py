"""Fingerprints: copies of a message have the same however they are spelled, other messages have another."""

import json

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.messages.envelope import SIZE, fingerprint


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


def test_a_fingerprint_has_16_bytes_that_never_change():
    assert SIZE == 16
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


plain_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=6,
)


@given(plain_values, plain_values)
def test_fingerprints_are_equal_exactly_when_bodies_are(one, other):
    # json.dumps with sorted keys tells true from 1, which == does not.
    same = json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)

    assert (fingerprint("Rang", json.dumps(one)) == fingerprint("Rang", json.dumps(other))) == same


def test_a_packed_body_has_the_fingerprint_of_its_json():
    body = {"tower": "east", "times": 3, "marks": [1.5, None, True]}

    packed = fingerprint("Rang", msgpack.packb(body), packed=True)

    assert packed == fingerprint("Rang", json.dumps(body))


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
