"""Message ids: a UUID in any spelling is one id, and no text is ever taken for a UUID's bytes."""

from functools import reduce
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.messages.envelope import canonical, id_key, id_text, join_ids, pack_ids, unpack_ids

CANONICAL = "7d444840-9dc0-11d1-b245-5ffdce74fad2"


@pytest.mark.parametrize(
    "spelling",
    [
        CANONICAL,
        CANONICAL.upper(),
        CANONICAL.replace("-", ""),
        CANONICAL.replace("-", "").upper(),
        f"{{{CANONICAL}}}",
        f"{{{CANONICAL.upper()}}}",
        f"urn:uuid:{CANONICAL}",
        f"URN:UUID:{CANONICAL.upper()}",
    ],
)
def test_every_spelling_of_a_uuid_is_one_id(spelling):
    assert canonical(spelling) == CANONICAL


@given(st.uuids())
def test_a_uuid_is_spelled_as_python_spells_it(key):
    assert canonical(str(key).upper()) == str(key)
    assert id_key(str(key)) == key.bytes


@pytest.mark.parametrize(
    "text",
    [
        "order-7",
        "Order-7",
        " " + CANONICAL,
        CANONICAL + "\n",
        CANONICAL + "0",
        CANONICAL[:-1],
        "x" + CANONICAL,
        "\u0667" * 32,
    ],
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
    assert id_key(text) != id_key(str(key))
    assert unpack_ids(pack_ids([id_key(text)])) != unpack_ids(pack_ids([id_key(str(key))]))
    assert pack_ids([id_key(text)]) != pack_ids([id_key(str(key))])


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


@given(st.lists(st.uuids(), min_size=1, max_size=50))
def test_a_uuid_takes_16_bytes(keys):
    assert len(pack_ids([key.bytes for key in keys])) == 1 + 16 * len(keys)
