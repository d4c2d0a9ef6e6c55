"""Events, partitions and keys."""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle
from datetime import UTC, datetime
from decimal import Decimal
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventstore import EventData, EventId, Include, Int64, InvalidKeyError, Partition, Stream, connect, drive
from eventstore.keys import MAX_KEY_UNITS, escape, escape_bound, unescape

EVENT = EventData({"N": 1, "Text": "t"}, id="one", includes=[Include.insert("row", {"M": 2})])
VALUES = ["t", True, 1, Int64(1), 1.5, datetime(2020, 1, 1, tzinfo=UTC), UUID(int=1), b"b"]


def test_an_event_needs_no_properties():
    assert EventData(id="one") == EventData({}, id="one")
    assert EventData().properties == {}


@pytest.mark.parametrize("value", [Decimal(1), 1j, [1], {"a": 1}, (1,), object()])
def test_a_value_that_no_table_holds_is_refused_at_once(value):
    table = drive(connect("memory:").table("games"))
    for make in (
        lambda: EventData({"P": value}),
        lambda: Include.insert("row", {"P": value}),
        lambda: Include.merge("row", {"P": value}),
        lambda: Stream(Partition(table, "p"), properties={"P": value}),
    ):
        with pytest.raises(TypeError, match=r"The property 'P' is a .*, which no table holds"):
            make()


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_a_value_of_each_type_is_taken(value):
    assert EventData({"P": value}).properties == {"P": value}


def test_events_can_be_pickled_copied_and_hashed():
    for made in (pickle.loads(pickle.dumps(EVENT)), copy.copy(EVENT), copy.deepcopy(EVENT)):
        assert made == EVENT
        assert hash(made) == hash(EVENT)
    assert len({EVENT, EventData({"Text": "t", "N": 1}, id="one", includes=EVENT.includes)}) == 1


def test_an_event_is_a_dict_and_json():
    as_dict = dataclasses.asdict(EventData({"N": 1, "Text": "t"}, id="one"))

    assert json.loads(json.dumps(as_dict)) == {
        "properties": {"N": 1, "Text": "t"},
        "id": {"value": "one"},
        "includes": [],
    }


@pytest.mark.parametrize(
    "change",
    [
        lambda properties: properties.__setitem__("N", 2),
        lambda properties: properties.__delitem__("N"),
        lambda properties: properties.update(N=2),
        lambda properties: properties.setdefault("M", 2),
        lambda properties: properties.pop("N"),
        lambda properties: properties.popitem(),
        lambda properties: properties.clear(),
        lambda properties: properties.__ior__({"N": 2}),
    ],
)
def test_properties_cannot_be_changed(change):
    with pytest.raises(TypeError, match="cannot be changed"):
        change(EVENT.properties)

    assert EVENT.properties == {"N": 1, "Text": "t"}


def test_a_copy_of_properties_may_be_changed():
    mine = {**EVENT.properties, "N": 2}

    assert (mine, EVENT.properties["N"]) == ({"N": 2, "Text": "t"}, 1)


def test_an_id_may_be_given_as_text_or_uuid():
    assert EventData(id=UUID(int=1)).id == EventId("00000000-0000-0000-0000-000000000001")


@pytest.fixture
def table():
    return drive(connect("memory:").table("games"))


def test_a_key_names_a_partition(table):
    partition = Partition(table, "orders")

    assert (partition.key, partition.prefix, str(partition)) == ("orders", "", "orders")
    assert (partition.header, partition.event(7), partition.event_id("x")) == (
        "SS-HEAD",
        "SS-SE-0000000007",
        "SS-UID-x",
    )


def test_both_spellings_of_a_virtual_partition_are_equal(table):
    partition = Partition(table, "orders|7|a")

    assert partition == Partition(table, "orders", "7|a")
    assert (partition.key, partition.prefix, str(partition)) == ("orders", "7|a|", "orders|7|a")
    assert partition.header == "7|a|SS-HEAD"


def test_an_exact_key_is_not_split(table):
    partition = Partition.exact(table, "orders|7")

    assert (partition.key, partition.prefix, str(partition)) == ("orders|7", "", "orders|7")


@pytest.mark.parametrize(
    ("key", "prefix"), [("", None), ("|a", None), ("a|", None), ("a", ""), ("a|b", "c"), ("", "a")]
)
def test_keys_and_prefixes_are_not_empty_nor_ambiguous(table, key, prefix):
    with pytest.raises(ValueError, match="partition's"):
        Partition(table, key, prefix)


def test_a_partition_cannot_be_changed(table):
    partition = Partition(table, "orders")

    with pytest.raises(AttributeError):
        partition.key = "other"  # type: ignore[misc]


@pytest.mark.parametrize("prefix", [None, "p"])
def test_the_version_of_an_event_row_is_read_from_its_key(table, prefix):
    partition = Partition(table, "orders", prefix)

    assert partition.version_of(partition.event(1)) == 1
    assert partition.version_of(partition.event(2147483647)) == 2147483647
    for other in (
        partition.header,
        partition.event_id("0000000001"),
        partition.event(1) + "0",
        partition.event(1)[:-1],
    ):
        assert partition.version_of(other) is None


def test_a_row_of_another_stream_has_no_version_here(table):
    first, second, whole = (Partition(table, key) for key in ("orders|a", "orders|b", "orders"))

    assert first.version_of(second.event(1)) is None
    assert first.version_of(whole.event(1)) is None
    assert whole.version_of(first.event(1)) is None


@pytest.mark.parametrize("prefix", ["SS-UID-x", "SS-HEAD", "SS-", "a|SS-UID-b", "aSS-UID-b"])
def test_a_prefix_is_not_like_the_row_keys_of_a_stream(table, prefix):
    with pytest.raises(ValueError, match="begin with 'SS-'"):
        Partition(table, "orders", prefix)
    with pytest.raises(ValueError, match="begin with 'SS-'"):
        Partition(table, f"orders|{prefix}")
    with pytest.raises(ValueError, match="begin with 'SS-'"):
        Partition.exact(table, "orders", prefix)


def test_a_prefix_may_hold_what_is_in_no_row_key_of_a_stream(table):
    assert Partition(table, "orders", "CLASS-SS").header == "CLASS-SS|SS-HEAD"


def test_an_exact_prefix_is_what_the_rows_begin_with(table):
    partition = Partition.exact(table, "orders", "7")

    assert (partition.key, partition.prefix, str(partition)) == ("orders", "7", "orders|7")
    assert (partition.header, partition.event(1)) == ("7SS-HEAD", "7SS-SE-0000000001")
    assert partition.version_of("7SS-SE-0000000001") == 1


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
