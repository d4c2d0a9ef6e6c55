"""Digests of outputs and states, and keys of ids, in C: those of Python, byte for byte, and no memory is lost."""

import gc
import json
import sys
import tracemalloc
from collections import OrderedDict
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handlers import Published
from handlers.native import PURE_PYTHON, find_native
from runtime.messages import digests, message_ids
from runtime.messages.digests import NO_OUTPUTS, digest_outputs, digest_state
from runtime.messages.message_ids import id_key

pytestmark = pytest.mark.skipif(find_native("json") is None, reason=f"{PURE_PYTHON} is set")

native: Any = find_native("runtime.messages._digests")

UUID = "7d444840-9dc0-11d1-b245-5ffdce74fad2"
OUTPUT: Any = Published(UUID, "Rang", b'{"tower":"east"}', {})
LEFT = b"left to Python"
SIZES = [0, 1, 31, 32, 255, 256, 65535, 65536]


def left(_: object) -> bytes:
    """Stand in for the Python function, to see what is left to it."""
    return LEFT


def outputs_in_c(*published: Any) -> Any:
    (digest,) = native.outputs_digests([list(published)], left)
    return digest


class TestDigestsOfOutputs:
    @pytest.mark.parametrize("count", [1, 2, 15, 16, 65535, 65536])
    def test_outputs_without_headers_are_taken(self, count):
        published = [OUTPUT] * count

        assert outputs_in_c(*published) == digest_outputs(published)

    @pytest.mark.parametrize("size", SIZES)
    @pytest.mark.parametrize("letter", ["x", "é", "\U0001f600"])
    def test_parts_of_each_size_are_taken(self, size, letter):
        text = letter * (size // len(letter.encode()))
        published = [
            Published(text, "Rang", b"", {}),
            Published("1", text, b"", {}),
            Published("2", "Rang", b"x" * size, {}),
        ]

        assert outputs_in_c(*published) == digest_outputs(published)

    def test_a_tuple_is_taken_as_a_list_is(self):
        assert native.outputs_digests(((tuple(OUTPUT),),), left) == [digest_outputs([OUTPUT])]

    @pytest.mark.parametrize(
        "output",
        [
            OUTPUT._replace(headers={"a": "b"}),
            OUTPUT._replace(headers=OrderedDict()),
            OUTPUT._replace(headers=MappingProxyType({})),
            OUTPUT._replace(headers=None),
            OUTPUT._replace(headers=()),
            OUTPUT._replace(message_id=1),
            OUTPUT._replace(message_id="\ud800"),
            OUTPUT._replace(message_id=b"1"),
            OUTPUT._replace(type=None),
            OUTPUT._replace(body="{}"),
            OUTPUT._replace(body=bytearray(b"{}")),
            OUTPUT._replace(body=None),
            OUTPUT[:3],
            (*OUTPUT, 1),
            list(OUTPUT),
            None,
        ],
        ids=ascii,
    )
    def test_other_outputs_are_left_to_python(self, output):
        assert outputs_in_c(output) == LEFT
        assert outputs_in_c(OUTPUT, output, OUTPUT) == LEFT

    def test_a_tuple_that_gives_other_items_is_left_to_python(self):
        class Backwards(tuple):
            __slots__ = ()

            def __iter__(self):
                return reversed(self)

        assert outputs_in_c(Backwards(OUTPUT)) == LEFT

    @pytest.mark.parametrize("name", ["message_id", "type", "body"])
    def test_a_part_that_is_very_large_is_left_to_python(self, name):
        one = b"x" if name == "body" else "x"
        longest = OUTPUT._replace(**{name: one * native.MAX_TEXT})
        longer = OUTPUT._replace(**{name: one * (native.MAX_TEXT + 1)})

        assert outputs_in_c(longest) == digest_outputs([longest])
        assert outputs_in_c(longer) == LEFT

    def test_what_is_left_to_python_is_put_in_its_place(self):
        # Given outputs of which some are not plain, and messages that published nothing
        headed = OUTPUT._replace(headers={"b": "1", "a": "2"})
        published = [[OUTPUT], [], [headed, OUTPUT], (), [OUTPUT, OUTPUT]]

        # When all digests are made
        found = digests.digests_of_outputs(published)

        # Then each is the one that Python makes
        assert found == [digest_outputs(each) for each in published]
        assert found[1] == found[3] == NO_OUTPUTS

    def test_an_error_of_python_is_raised(self):
        with pytest.raises(TypeError):
            digests.digests_of_outputs([[OUTPUT], [OUTPUT._replace(body=object())]])
        with pytest.raises(UnicodeEncodeError):
            digests.digests_of_outputs([[OUTPUT._replace(message_id="\ud800")]])
        with pytest.raises(ZeroDivisionError):
            native.outputs_digests([[]], lambda _: 1 // 0)

    def test_a_list_that_is_changed_meanwhile_is_read_as_it_was(self):
        published: list[Any] = [[], [OUTPUT], []]

        def change(_: object) -> bytes:
            published.clear()
            return NO_OUTPUTS

        assert native.outputs_digests(published, change) == [NO_OUTPUTS, digest_outputs([OUTPUT]), NO_OUTPUTS]

    texts = st.text(max_size=40)
    outputs = st.builds(
        Published,
        texts,
        texts,
        st.binary(max_size=40),
        st.just({}) | st.dictionaries(texts, texts, max_size=2),
    )

    @given(st.lists(st.lists(outputs, max_size=4), max_size=4))
    def test_all_outputs_have_the_digests_of_python(self, published):
        assert digests.digests_of_outputs(published) == [digest_outputs(each) for each in published]
        assert native.outputs_digests(published, left) == [
            LEFT if not each or any(output.headers for output in each) else digest_outputs(each)
            for each in published
        ]

    @pytest.mark.parametrize("given", [(), ([],), (1, left), (None, left), ([[]], None), ([], left, 1)])
    def test_other_arguments_are_a_type_error(self, given):
        with pytest.raises(TypeError):
            native.outputs_digests(*given)


class TestDigestsOfStates:
    @given(st.lists(st.binary(max_size=200), max_size=5))
    def test_all_states_have_the_digests_of_python(self, encoded):
        assert digests.digests_of_states(encoded) == [digest_state(each) for each in encoded]

    @pytest.mark.parametrize("size", [0, 55, 56, 64, 2047, 2048, 2**20])
    def test_states_of_each_size_have_the_digests_of_python(self, size):
        assert native.state_digests([b"x" * size]) == [digest_state(b"x" * size)]

    def test_whatever_has_bytes_is_taken(self):
        assert native.state_digests((bytearray(b"x"), memoryview(b"x"))) == [digest_state(b"x")] * 2

    @pytest.mark.parametrize("given", [1, None, [1], ["x"], [b"x", None]])
    def test_what_has_no_bytes_is_a_type_error(self, given):
        with pytest.raises(TypeError):
            native.state_digests(given)


class TestKeysOfIds:
    @given(st.lists(st.uuids(), max_size=5))
    def test_uuids_are_taken(self, uuids):
        assert native.id_keys(list(map(str, uuids)), left) == [each.bytes for each in uuids]

    def test_a_uuid_with_a_mistake_at_any_place_is_left_to_python(self):
        others = ["", *"-/0:`ag9fAG\n\0 é"]
        mistakes = {
            UUID[:place] + put + UUID[place + left_out :]
            for place in range(len(UUID) + 1)
            for left_out in range(2)
            for put in others
        }
        ids = sorted(mistakes)

        assert native.id_keys(ids, id_key) == [id_key(each) for each in ids]
        assert len({type(id_key(each)) for each in ids}) == 2

    @given(st.lists(st.uuids().map(str) | st.text() | st.text("0123456789abcdef-", min_size=36, max_size=36)))
    def test_all_ids_have_the_keys_of_python(self, ids):
        assert message_ids.id_keys(ids) == [id_key(each) for each in ids]

    @pytest.mark.parametrize("ids", [[1], [None], [UUID, b"x"], 1, None])
    def test_what_is_no_text_is_a_type_error(self, ids):
        with pytest.raises(TypeError):
            message_ids.id_keys(ids)


USES = {
    "fingerprints": lambda: native.fingerprints(
        ["Rang", "é", "\ud800", "Rang", "Rang", 1],
        ['{"b":1,"a":"x"}', '{"a":"é"}', "{}", '{"a":"é', "\ud800", None],
    ),
    "fingerprints of no sequence": lambda: native.fingerprints(["Rang"], 1),
    "fingerprints without bodies": lambda: native.fingerprints(["Rang"], []),
    "outputs": lambda: native.outputs_digests(
        [[OUTPUT], [], [OUTPUT, OUTPUT._replace(type="é")], [OUTPUT, None], None], left
    ),
    "outputs with an error": lambda: native.outputs_digests([[OUTPUT], []], lambda _: 1 // 0),
    "states": lambda: native.state_digests([b"x", b"y" * 1000]),
    "states with an error": lambda: native.state_digests([b"x", 1]),
    "ids": lambda: native.id_keys([UUID, "x", "é"], left),
    "ids with an error": lambda: native.id_keys([UUID, "x"], lambda _: 1 // 0),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES.keys())
def test_no_memory_is_lost(use):
    def repeat(times):
        for _ in range(times):
            try:
                use()
            except (TypeError, ValueError, ZeroDivisionError):
                continue

    # Given a function that was used before
    repeat(100)
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]

        # When it is used a thousand times
        repeat(1000)
        gc.collect()

        # Then there is not one object more for each, of which the least has 28 bytes
        assert tracemalloc.get_traced_memory()[0] - before < 20_000
    finally:
        tracemalloc.stop()


def test_no_argument_is_kept():
    # Given arguments of all functions, some of them not plain
    kept = [
        "rang".title(),
        json.dumps({"a": "x"}),
        json.dumps({"a": "é"}, ensure_ascii=False),
        json.dumps({"a": []}),
        UUID.upper().lower(),
        Published("1", "Rang", b"{}", {}),
        bytes([1, 2, 3] * 20),
    ]
    type_, body, other, unfit, id_, output, state = kept
    before = list(map(sys.getrefcount, kept))

    # When they are used often
    for _ in range(1000):
        native.fingerprints([type_] * 3, [body, other, unfit])
        native.outputs_digests([[output], [output, None]], left)
        native.state_digests([state])
        native.id_keys([id_, body], left)

    # Then nothing holds them
    assert list(map(sys.getrefcount, kept)) == before


def test_python_alone_does_the_same(monkeypatch):
    # Given outputs, states and ids
    published = [[OUTPUT], [], [OUTPUT._replace(headers={"a": "b"})]]
    states, ids, mixed = [b"x", b"y"], [UUID] * 3, [UUID, "x", UUID + "\n"]

    def all_of_them():
        return (
            digests.digests_of_outputs(published),
            digests.digests_of_states(states),
            message_ids.id_keys(ids),
            message_ids.id_keys(mixed),
            message_ids.id_keys([]),
        )

    # When C makes what is to be made of them, and Python does
    made = all_of_them()
    for module in (digests, message_ids):
        monkeypatch.setattr(module, "_native", None)

    # Then both make the same
    assert all_of_them() == made
