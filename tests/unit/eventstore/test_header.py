"""The values of a stream: events, includes and what several of one row come to, and partitions."""

import copy
import pickle

import pytest

from eventstore import EventData, Include, Partition, RecordedEvent, connect, drive
from eventstore.header import combine

EVENT = EventData({"N": 1, "Text": "t"}, id="one", includes=[Include.insert("row", {"M": 2})])


@pytest.fixture
def table():
    return drive(connect("memory:").table("games"))


@pytest.mark.parametrize("name", ["PartitionKey", "RowKey", "Timestamp", "ETag", "odata.etag", "Version"])
def test_names_that_the_store_needs_are_refused_and_what_the_caller_gave_is_copied(name):
    with pytest.raises(ValueError, match=name):
        EventData({name: 1})

    properties = {"N": 1, "Nothing": None}
    data = EventData(properties)
    properties["N"] = 2
    assert data.properties == {"N": 1}


@pytest.mark.parametrize("event", [EVENT, RecordedEvent(1, EVENT.properties, EVENT.id)])
def test_events_can_be_pickled_copied_and_hashed(event):
    for made in (pickle.loads(pickle.dumps(event)), copy.copy(event), copy.deepcopy(event)):
        assert made == event
        assert hash(made) == hash(event)
        assert (made.id, type(made.properties)) == (event.id, type(event.properties))
    assert len({EVENT, EventData({"Text": "t", "N": 1}, id="one", includes=EVENT.includes)}) == 1


@pytest.mark.parametrize(
    ("change", "given"),
    [
        ("__setitem__", ("N", 2)),
        ("__delitem__", ("N",)),
        ("update", ({"N": 2},)),
        ("setdefault", ("M", 2)),
        ("pop", ("N",)),
        ("popitem", ()),
        ("clear", ()),
        ("__ior__", ({"N": 2},)),
    ],
)
def test_properties_cannot_be_changed_and_a_copy_may_be(change, given):
    with pytest.raises(TypeError, match="immutable"):
        getattr(EVENT.properties, change)(*given)

    assert EVENT.properties == {"N": 1, "Text": "t"}
    assert {**EVENT.properties, "N": 2} == {"N": 2, "Text": "t"}


# Several changes of one row: tests/contract/test_includes.py tries all pairs.

FIRST, SECOND = {"A": 1, "B": 1}, {"B": 2, "C": 2}
BOUND = Include.replace("row", FIRST, "one")
INSERT = Include.insert("row", FIRST)
UNDONE = [INSERT, Include.delete("row")]
REPLACE, MERGE, DELETE = Include.replace("row", SECOND), Include.merge("row", SECOND), Include.delete("row")


@pytest.mark.parametrize(
    ("includes", "combined"),
    [
        ([BOUND, REPLACE], [Include.replace("row", SECOND, "one")]),
        ([BOUND, Include.delete("row", "one")], [Include.delete("row", "one")]),
        ([Include.insert(key, {}) for key in "cab"], [Include.insert(key, {}) for key in "cab"]),
        ([INSERT, MERGE], [Include.insert("row", {"A": 1, "B": 2, "C": 2})]),
        (UNDONE, []),
        *[
            ([*UNDONE, make("row", SECOND)], [Include.insert("row", SECOND)])
            for make in (Include.insert, Include.insert_or_merge, Include.insert_or_replace)
        ],
    ],
)
def test_changes_of_one_row_become_one_under_the_condition_of_the_first(includes, combined):
    assert combine(includes) == tuple(combined)


@pytest.mark.parametrize(
    ("includes", "told"),
    [
        (lambda: [BOUND, Include.replace("row", SECOND, "two")], "two different ETags"),
        *[(lambda it=it: [it], r"needs the row's ETag, or '[*]'") for it in (REPLACE, MERGE, DELETE)],
        *[
            (lambda it=it: [*UNDONE, it], "'row' cannot be .* after 'inserted and deleted'")
            for it in (REPLACE, MERGE, DELETE)
        ],
        (lambda: [Include.replace("there", {}, "")], "ETag"),
        (lambda: [Include.merge("there", {}, "")], "ETag"),
        (lambda: [Include.delete("there", "")], "ETag"),
    ],
)
def test_changes_that_cannot_follow_each_other_or_have_an_empty_etag_are_refused(includes, told):
    with pytest.raises(ValueError, match=told):
        combine(includes())


# Partitions.


@pytest.mark.parametrize(
    ("place", "key", "prefix", "text"),
    [
        (lambda table: Partition(table, "orders"), "orders", "", "orders"),
        (lambda table: Partition(table, "orders|7|a"), "orders", "7|a|", "orders|7|a"),
        (lambda table: Partition(table, "orders", "7|a"), "orders", "7|a|", "orders|7|a"),
        (lambda table: Partition(table, "orders", "CLASS-SS"), "orders", "CLASS-SS|", "orders|CLASS-SS"),
        (lambda table: Partition.exact(table, "orders|7"), "orders|7", "", "orders|7"),
        (lambda table: Partition.exact(table, "orders", "7"), "orders", "7", "orders|7"),
    ],
)
def test_a_partition_is_a_key_and_a_prefix_with_which_its_rows_begin(table, place, key, prefix, text):
    partition = place(table)

    assert (partition.key, partition.prefix, str(partition)) == (key, prefix, text)
    assert partition == Partition.exact(table, key, prefix)
    assert (partition.header, partition.event(7), partition.event_id("x")) == (
        f"{prefix}SS-HEAD",
        f"{prefix}SS-SE-0000000007",
        f"{prefix}SS-UID-x",
    )
    assert partition.version_of(partition.event(2147483647)) == 2147483647
    for other in (
        partition.header,
        partition.event_id("0000000001"),
        partition.event(1) + "0",
        partition.event(1)[:-1],
        f"another|{partition.event(1)}",
        "SS-SE-0000000001" if prefix else "7|SS-SE-0000000001",
    ):
        assert partition.version_of(other) is None
    with pytest.raises(AttributeError):
        partition.key = "other"


@pytest.mark.parametrize(
    ("key", "prefix"), [("", None), ("|a", None), ("a|", None), ("a", ""), ("a|b", "c"), ("", "a")]
)
def test_keys_and_prefixes_are_not_empty_nor_ambiguous(table, key, prefix):
    with pytest.raises(ValueError, match="partition's"):
        Partition(table, key, prefix)


@pytest.mark.parametrize("prefix", ["SS-UID-x", "SS-HEAD", "SS-", "a|SS-UID-b", "aSS-UID-b"])
def test_a_prefix_is_not_like_the_row_keys_of_a_stream(table, prefix):
    for make in (
        lambda: Partition(table, "orders", prefix),
        lambda: Partition(table, f"orders|{prefix}"),
        lambda: Partition.exact(table, "orders", prefix),
    ):
        with pytest.raises(ValueError, match="begin with 'SS-'"):
            make()
