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
