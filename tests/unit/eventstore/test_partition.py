from __future__ import annotations

import pytest

from eventstore import Partition, connect, drive


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
