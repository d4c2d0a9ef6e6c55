"""Fingerprints in C: those of Python, byte for byte, of the bodies that are common; all others are left to Python."""

import json
import sys
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from handlers.native import PURE_PYTHON, find_native
from runtime.messages.fingerprint import fingerprint, fingerprints

pytestmark = pytest.mark.skipif(find_native("json") is None, reason=f"{PURE_PYTHON} is set")

native: Any = find_native("runtime.messages._digests")

TYPE = "Rang"
SIZES = [0, 1, 31, 32, 255, 256, 65535, 65536]
UUID = "7d444840-9dc0-11d1-b245-5ffdce74fad2"
WIDTHS = [0, 5, 7, 8, 15, 16, 31, 32, 62, 63]
INT64 = range(-(2**63), 2**63)
INTEGERS = sorted({sign * 2**width + more for sign in (-1, 1) for width in WIDTHS for more in (-1, 0, 1)})
COMMON = f'{{"user_id":"{UUID}","leader_board_id":"{UUID}","movement_direction":"left"}}'
NOT_PLAIN = [
    "",
    " ",
    "{",
    "}",
    "[]",
    "1",
    '"a"',
    "null",
    "{}{}",
    "{} x",
    "{}\0",
    "{}\ufeff",
    "\ufeff{}",
    "\x0b{}",
    "\xa0{}",
    "{\u2028}",
    "{,}",
    "{a:1}",
    "{'a':1}",
    "{1:1}",
    '{"a"}',
    '{"a":}',
    '{"a" 1}',
    '{"a"::1}',
    '{"a":1,}',
    '{"a":1,,"b":2}',
    '{,"a":1}',
    '{"a":1 "b":2}',
    '{"a":1,"b"}',
    '{"a":1',
    '{"a":1,',
    '{"a',
    '{"a":"b',
    '{"a":"b"c"}',
    '{"a":1,"a":1}',
    '{"a":1,"a":2}',
    '{"b":1,"a":1,"b":1}',
    '{"":1,"":1}',
    '{"a":1,"\\u0061":1}',
    '{"a":"\\n"}',
    '{"a":"\\ud800"}',
    '{"\\ud83d\\ude00":1}',
    '{"a":"\t"}',
    '{"a":"\n"}',
    '{"a":"\x1f"}',
    '{"a":"\0"}',
    '{"a\0":1}',
    '{"a":"\ud800"}',
    '{"\udfff":1}',
    '{"a":-}',
    '{"a":-0}',
    '{"a":+1}',
    '{"a":00}',
    '{"a":01}',
    '{"a":-01}',
    '{"a":- 1}',
    '{"a":1 2}',
    '{"a":0x1}',
    '{"a":1_0}',
    '{"a":\u0661}',
    '{"a":.5}',
    '{"a":1.}',
    '{"a":1.0}',
    '{"a":1.5}',
    '{"a":1e2}',
    '{"a":1E2}',
    '{"a":9223372036854775808}',
    '{"a":-9223372036854775809}',
    '{"a":18446744073709551615}',
    '{"a":18446744073709551616}',
    '{"a":18446744073709551617}',
    '{"a":36893488147419103233}',
    f'{{"a":{"9" * 100}}}',
    f'{{"a":{"1" * 5000}}}',
    '{"a":NaN}',
    '{"a":Infinity}',
    '{"a":-Infinity}',
    '{"a":nul}',
    '{"a":nulls}',
    '{"a":True}',
    '{"a":TRUE}',
    '{"a":truefalse}',
    '{"a":fals}',
    '{"a":{}}',
    '{"a":[]}',
    '{"a":{"b":1}}',
    '{"a":[1]}',
    '{"a":1}//',
    '{"a":1/**/}',
]


def in_c(body: Any, type_: Any = TYPE) -> Any:
    (found,) = native.fingerprints([type_], [body])
    return found


def agrees(body: str, found: bytes | None) -> bool:
    """Say whether Python gives the same; what Python refuses must have no fingerprint."""
    return found is None or found == fingerprint(TYPE, body)


def test_the_part_in_c_was_built():
    assert native is not None, "Build it: python setup.py build_ext --inplace"


@pytest.mark.parametrize(
    "body",
    [
        COMMON,
        "{}",
        " {\t}\r\n",
        '{"tower":"east","times":3}',
        '{"times":3,"tower":"east"}',
        '{"b":null,"a":true,"":false}',
        ' {\n"a" : 1\t,\r"b" :"" } ',
        '{"a":"/\x7f\'"}',
        '{"ä":"ö","z":"€","\U0001f600":"\uffff","\uffff":"\U0010ffff"}',
        '{"aa":1,"a":2,"b":3,"ab":4}',
    ],
)
def test_common_bodies_are_taken(body):
    assert in_c(body) == fingerprint(TYPE, body)


def test_a_fingerprint_has_16_bytes_that_never_change():
    assert in_c('{"tower":"east","times":3}').hex() == "af32688c4cf9723eccaa91771bc4a985"


@pytest.mark.parametrize("number", INTEGERS)
def test_integers_of_64_bits_are_taken(number):
    body = json.dumps({"a": number})

    assert in_c(body) == (fingerprint(TYPE, body) if number in INT64 else None)


@pytest.mark.parametrize("letter", ["x", "é", "€", "\U0001f600"])
@pytest.mark.parametrize("size", SIZES)
def test_texts_of_each_size_are_taken(size, letter):
    # Given a text of so many bytes, or a few less where its letters do not fit
    text = letter * (size // len(letter.encode()))

    # When it is a key, a value, and the name of a type
    bodies = [json.dumps(each, ensure_ascii=False) for each in ({text: 1}, {"a": text})]
    types = [TYPE, TYPE, text]

    # Then each has the fingerprint that Python gives
    assert native.fingerprints(types, [*bodies, "{}"]) == list(map(fingerprint, types, [*bodies, "{}"]))


@pytest.mark.parametrize("count", [0, 1, 15, 16, 63, 64])
@pytest.mark.parametrize("step", [1, -1])
def test_objects_of_up_to_64_members_are_taken(count, step):
    body = json.dumps({f"{number:x}": number for number in range(count)[::step]})

    assert native.MAX_MEMBERS == 64
    assert in_c(body) == fingerprint(TYPE, body)


@pytest.mark.parametrize("count", [65, 65535, 65536])
def test_objects_of_more_members_are_left_to_python(count):
    assert in_c(json.dumps(dict.fromkeys(map(str, range(count))))) is None


def test_a_body_that_is_very_large_is_left_to_python():
    # Given a body as long as one may be, and another of one character more
    longest = f'{{"a":"{"é" * (native.MAX_TEXT - 8)}"}}'
    longer = f"{longest} "

    # Then the one is taken, and the other is not, as a body or as the name of a type
    assert len(longest) == native.MAX_TEXT
    assert in_c(longest) == fingerprint(TYPE, longest)
    assert in_c(longer) is None
    assert in_c("{}", longer) is None


@pytest.mark.parametrize("body", NOT_PLAIN)
def test_what_is_not_plain_is_left_to_python(body):
    assert in_c(body) is None


class Text(str):
    """Text that may be anything."""

    __slots__ = ()


@pytest.mark.parametrize(
    "body", [None, 1, {}, b"{}", bytearray(b"{}"), msgpack.packb({}), Text("{}"), Ellipsis], ids=repr
)
def test_a_body_that_is_no_str_is_left_to_python(body):
    assert in_c(body) is None


@pytest.mark.parametrize("type_", [None, 1, b"Rang", Text("Rang"), "\ud800"], ids=ascii)
def test_a_type_that_is_no_text_is_left_to_python(type_):
    assert in_c("{}", type_) is None


spaces = st.text(" \t\r\n", max_size=3)
raw_texts = st.text(st.characters(codec="utf-8", exclude_categories=["Cc"], exclude_characters='"\\'))
plain_values = (
    st.none() | st.booleans() | st.sampled_from(INTEGERS) | st.integers(-(2**63), 2**63 - 1) | raw_texts
)


def is_plain(value: object) -> bool:
    return type(value) is not int or value in INT64


@st.composite
def plain_bodies(draw):
    """Draw a body that is plain, in any order and with any spaces."""
    members = draw(st.dictionaries(raw_texts, plain_values.filter(is_plain), max_size=20))
    ordered = draw(st.permutations(list(members)))
    written = [
        f"{draw(spaces)}{json.dumps(part, ensure_ascii=False)}{draw(spaces)}"
        for key in ordered
        for part in (key, members[key])
    ]
    inside = ",".join(f"{key}:{value}" for key, value in zip(written[::2], written[1::2], strict=True))
    return f"{draw(spaces)}{{{inside or draw(spaces)}}}{draw(spaces)}"


@given(st.lists(st.tuples(raw_texts, plain_bodies()), max_size=5))
def test_all_plain_bodies_are_taken_and_have_the_fingerprints_of_python(messages):
    types, bodies = [type_ for type_, _ in messages], [body for _, body in messages]

    assert native.fingerprints(types, bodies) == list(map(fingerprint, types, bodies))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), json_values, max_size=6) | json_values, st.booleans())
def test_no_body_has_another_fingerprint_than_in_python(value, ensure_ascii):
    body = json.dumps(value, ensure_ascii=ensure_ascii)

    assert agrees(body, in_c(body))


HOSTILE = [*'{}[]":,\\/', *" \t\n\r\0\x0b\x1f\x7f\xa0\u2028\ufeff\ud800", *"0129-+.eEuntfé", "\U0001f600"]


@given(plain_bodies(), st.data())
def test_a_body_with_mistakes_has_no_other_fingerprint_than_in_python(body, data):
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(body)))
        end = place + data.draw(st.integers(0, 2))
        body = body[:place] + data.draw(st.sampled_from(["", *HOSTILE])) + body[end:]

    assert agrees(body, in_c(body))


@pytest.mark.parametrize(
    "body",
    ['{"a":"b","ä": -12,"c" :null}', '{"a":true,"b":false}', '{"n":9223372036854775807}', '{"n":-10,"":0}'],
)
def test_no_mistake_at_any_place_gives_another_fingerprint_than_in_python(body):
    # Given the body with each mistake at each place: one or two characters are left out, and another is put in
    mistakes = {
        body[:place] + put + body[place + left :]
        for place in range(len(body) + 1)
        for left in range(3)
        for put in ("", *HOSTILE)
    }
    bodies = sorted(mistakes)

    # When all are read
    found = native.fingerprints([TYPE] * len(bodies), bodies)

    # Then those that are taken are sound, and some are of each kind
    assert [each for each, digest in zip(bodies, found, strict=True) if not agrees(each, digest)] == []
    assert 1 < found.count(None) < len(found) - 1


def test_a_body_is_plain_or_not_whatever_stands_beside_it():
    bodies = ['{"a":1}', '{"a":[]}', None, '{"b":"x"}', "", b"{}", COMMON]

    found = fingerprints([TYPE] * len(bodies), bodies)

    assert found == [
        fingerprint(TYPE, body) if body in {'{"a":1}', '{"b":"x"}', COMMON} else None for body in bodies
    ]
    assert fingerprints([], []) == []


def test_a_body_takes_no_more_memory_afterwards():
    body = json.dumps({"a": "é€" * 1000}, ensure_ascii=False)
    before = sys.getsizeof(body)

    assert in_c(body) is not None

    assert sys.getsizeof(body) == before


@pytest.mark.parametrize("given", [(), ([],), ([], [], []), (1, []), ([], 1), (None, None)])
def test_what_is_no_sequence_is_a_type_error(given):
    with pytest.raises(TypeError):
        native.fingerprints(*given)


@pytest.mark.parametrize(("types", "bodies"), [([], ["{}"]), ([TYPE], []), ([TYPE], ["{}", "{}"])])
def test_each_type_has_a_body(types, bodies):
    with pytest.raises(ValueError, match="expected a body for each type"):
        native.fingerprints(types, bodies)
