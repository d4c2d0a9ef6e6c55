from __future__ import annotations

import pytest

from eventstore import EventData, Include, IncludeConflictError, Operation, Stream


@pytest.fixture
def stream(run, table, partition):
    run(table.transact(partition.key, [Operation.insert("there", {"V": 1, "Kept": "k"})]))
    return run(Stream.provision(partition))


def write(run, stream, *includes):
    return run(Stream.write(stream, EventData({"N": 1}), includes=includes))


def row(run, stream, key):
    found = run(stream.partition.table.get(stream.partition.key, key))
    return None if found is None else found.properties


def test_a_row_is_inserted_with_the_event(run, stream):
    result = write(run, stream, Include.insert("new", {"V": 1}))

    assert row(run, stream, "new") == {"V": 1}
    assert result.includes[0].etag == run(stream.partition.table.get("orders-7", "new")).etag


def test_a_row_is_replaced_under_its_etag(run, stream):
    etag = run(stream.partition.table.get("orders-7", "there")).etag

    result = write(run, stream, Include.replace("there", {"V": 2}, etag))
    write(run, result.stream, Include.replace("there", {"V": 3}, result.includes[0].etag))

    assert row(run, stream, "there") == {"V": 3}


def test_a_row_is_replaced_without_a_condition(run, stream):
    write(run, stream, Include.replace("there", {"V": 2}, "*"))

    assert row(run, stream, "there") == {"V": 2}


def test_a_row_is_deleted(run, stream):
    result = write(run, stream, Include.delete("there", "*"))

    assert row(run, stream, "there") is None
    assert result.includes[0].etag == ""


@pytest.mark.parametrize(("key", "kept"), [("there", {"Kept": "k"}), ("new", {})])
def test_a_row_is_merged_or_inserted(run, stream, key, kept):
    write(run, stream, Include.insert_or_merge(key, {"V": 2}))

    assert row(run, stream, key) == {"V": 2, **kept}


@pytest.mark.parametrize("key", ["there", "new"])
def test_a_row_is_replaced_or_inserted(run, stream, key):
    write(run, stream, Include.insert_or_replace(key, {"V": 2}))

    assert row(run, stream, key) == {"V": 2}


@pytest.mark.parametrize(
    "include",
    [
        Include.insert("there", {"V": 2}),
        Include.replace("missing", {"V": 2}, "*"),
        Include.replace("there", {"V": 2}, 'W/"stale"'),
        Include.delete("missing", "*"),
        Include.delete("there", 'W/"stale"'),
    ],
)
def test_an_include_that_is_refused_undoes_the_write(run, stream, refuses, include):
    with refuses(IncludeConflictError) as raised:
        write(run, stream, Include.insert("new", {}), include)

    assert (raised.value.stream, raised.value.row_key) == ("orders-7", include.row_key)


@pytest.mark.parametrize("make", [Include.replace, lambda key, _, etag: Include.delete(key, etag)])
def test_an_empty_etag_is_no_permission(make):
    with pytest.raises(ValueError, match="ETag"):
        make("there", {}, "")


def test_includes_of_events_and_of_the_write_come_in_order(run, stream):
    result = run(
        Stream.write(
            stream,
            EventData({"N": 1}, includes=[Include.insert("a", {"V": 1})]),
            EventData({"N": 2}, includes=[Include.insert("b", {"V": 2})]),
            includes=[Include.insert("c", {"V": 3})],
        )
    )

    assert [(include.row_key, include.properties) for include in result.includes] == [
        ("a", {"V": 1}),
        ("b", {"V": 2}),
        ("c", {"V": 3}),
    ]


def test_changes_of_one_row_within_a_write_become_one(run, stream):
    write(
        run,
        stream,
        Include.insert("new", {"V": 1}),
        Include.replace("new", {"V": 2}, "*"),
        Include.insert("gone", {"V": 1}),
        Include.delete("gone", "*"),
        Include.delete("there", "*"),
        Include.insert("there", {"V": 9}),
    )

    assert [row(run, stream, key) for key in ("new", "gone", "there")] == [{"V": 2}, None, {"V": 9}]


@pytest.mark.parametrize(
    "key", ["SS-HEAD", "SS-SE-0000000001", "SS-UID-x", "sibling|SS-HEAD", "a|b|SS-SE-0000000009"]
)
def test_a_row_of_a_stream_cannot_be_included(run, stream, refuses, key):
    with refuses(ValueError, match="part of a stream"):
        write(run, stream, Include.insert_or_replace(key, {}))
