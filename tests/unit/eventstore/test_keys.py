from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventstore import InvalidKeyError
from eventstore.keys import MAX_KEY_UNITS, escape, escape_bound, unescape

TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=80)
CLEAN = st.text(st.sampled_from("ABCXYZabcxyz0189-_|:. ()[]{}!$&*+;<=>@^`"), min_size=1, max_size=20)


@pytest.mark.parametrize(
    "key",
    [
        "ShootingRange-6f9619ff-8b86-d011-b42d-00cf4fc964ff",
        "SS-HEAD",
        "a|SS-SE-0000000001",
        "2024-01-01T00:00",
        "Größe 你好",
    ],
)
def test_ordinary_keys_are_stored_as_they_are(key):
    assert escape(key) == key
    assert unescape(key) == key


@pytest.mark.parametrize(
    ("key", "stored"),
    [
        ("a/b", "a~2Fb"),
        ("a\\b#c?d", "a~5Cb~23c~3Fd"),
        ("100%", "100~25"),
        ("~2F", "~7E2F"),
        ("O'Brien, P", "O~27Brien~2C P"),
        ("\x00\x1f\x7f\x9f", "~00~1F~7F~9F"),
        ("\u2028", "~u2028"),
    ],
)
def test_other_characters_are_escaped(key, stored):
    assert escape(key) == stored
    assert unescape(stored) == key


@given(TEXT)
def test_escaping_is_reversible(key):
    assert unescape(escape(key)) == key


@given(TEXT, TEXT)
def test_different_keys_are_stored_differently(first, second):
    assert (escape(first) == escape(second)) == (first == second)


@given(TEXT)
def test_what_is_stored_has_no_character_that_a_service_refuses(key):
    stored = escape(key)

    assert not set(stored) & set("/\\#?%',")
    assert not any(character < " " or "\x7f" <= character <= "\x9f" for character in stored)


@given(CLEAN, CLEAN)
def test_clean_ascii_keys_keep_their_order(first, second):
    assert (escape(first) < escape(second)) == (first < second)


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=600))
def test_a_key_is_taken_if_it_has_at_most_512_units_once_escaped(key):
    units = len("".join(escape(character) for character in key).encode("utf-16-le")) // 2

    if 1 <= units <= MAX_KEY_UNITS:
        escape(key)
    else:
        with pytest.raises(InvalidKeyError):
            escape(key)


@pytest.mark.parametrize("key", ["\ud800", "a\udfff", "x" * 300 + "\ud800"])
def test_half_a_character_is_refused(key):
    with pytest.raises(InvalidKeyError, match="half a character"):
        escape(key)
    with pytest.raises(InvalidKeyError, match="half a character"):
        escape_bound(key)


def test_an_empty_key_is_refused_but_a_range_may_begin_at_one():
    with pytest.raises(InvalidKeyError, match="empty"):
        escape("")
    assert escape_bound("") == ""


def test_a_long_key_is_shown_shortened():
    with pytest.raises(InvalidKeyError) as raised:
        escape("x" * 10_000)

    assert len(str(raised.value)) < 200
