"""Keys as they are stored, and how they are spread over shards."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventstore import InvalidKeyError, Shard
from eventstore.keys import MAX_KEY_UNITS, escape, escape_bound, unescape

TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=80)
CLEAN = st.text(st.sampled_from("ABCXYZabcxyz0189-_|:. ()[]{}!$&*+;<=>@^`"), min_size=1, max_size=20)
ORDINARY = ["ShootingRange-6f9619ff-8b86-d011-b42d-00cf4fc964ff", "SS-HEAD", "a|SS-SE-0000000001",
            "2024-01-01T00:00", "Größe 你好"]  # fmt: skip


@pytest.mark.parametrize(
    ("key", "stored"),
    [
        *zip(ORDINARY, ORDINARY, strict=True),
        ("a/b", "a~2Fb"),
        ("a\\b#c?d", "a~5Cb~23c~3Fd"),
        ("100%", "100~25"),
        ("~2F", "~7E2F"),
        ("O'Brien, P", "O~27Brien~2C P"),
        ("\x00\x1f\x7f\x9f", "~00~1F~7F~9F"),
        ("\u2028", "~u2028"),
    ],
)
def test_some_characters_are_escaped_and_others_are_stored_as_they_are(key, stored):
    assert escape(key) == stored
    assert unescape(stored) == key


@given(TEXT, TEXT)
def test_escaping_is_reversible_and_leaves_no_character_that_a_service_refuses(first, second):
    stored = escape(first)

    assert unescape(stored) == first
    assert (stored == escape(second)) == (first == second)
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


@pytest.mark.parametrize("refused", [escape, escape_bound])
def test_a_long_key_that_is_refused_is_shown_shortened(refused):
    for key in ("x" * 10_000, "x" * 300 + "\ud800"):
        with pytest.raises(InvalidKeyError, match=r"xxx'[.]{3} .*(512|lone surrogate)") as raised:
            refused(key)
        assert len(str(raised.value)) < 200


@pytest.mark.parametrize(
    ("key", "shards"),
    [
        ("", [0, 3, 20, 647]),
        ("shard-test-1", [0, 8, 78, 810]),
        ("shard-test-2", [1, 6, 60, 442]),
        ("Größe", [1, 2, 54, 123]),
        ("Größe".encode("utf-16-le"), [1, 2, 54, 123]),
        ("6f9619ff-8b86-d011-b42d-00cf4fc964ff", [1, 6, 41, 41]),
    ],
)
def test_a_key_keeps_its_shards(key, shards):
    assert [Shard.resolve(key, total) for total in (2, 10, 100, 1000)] == shards


def test_the_published_values_of_the_jump_hash_are_met_and_there_is_at_least_one_shard():
    assert [Shard.resolve(number, 1) for number in (0, 1, 2**64 - 1)] == [0, 0, 0]
    assert Shard.resolve(1, 57) == Shard.resolve(1 + 2**64, 57)
    assert [Shard.resolve(10863919174838991, 11), Shard.resolve(2016238256797177309, 11)] == [6, 3]
    for total in (0, -1):
        with pytest.raises(ValueError, match="at least one shard"):
            Shard.resolve("key", total)


def test_one_more_shard_moves_only_keys_that_move_to_it():
    moved = 0
    for number in range(20_000):
        key = f"key-{number}"
        before, after = Shard.resolve(key, 10), Shard.resolve(key, 11)
        moved += before != after
        assert after in (before, 10)

    assert 20_000 / 11 * 0.9 < moved < 20_000 / 11 * 1.1
